"""Short excerpts of logs that public projects published, each with where it is from; what is left out is said.

They are kept as they were printed: they show what a format looks like that was not written for a test.
"""

from __future__ import annotations

import json

# github.com/mlcommons/training_results_v0.7, NVIDIA/results/dgx1_ngc20.06_pytorch/gnmt/result_0.txt; some of its TRAIN
# lines, most events and all of epochs 1 and 2 left out.
_EVENT = (
    ':::MLLOG {"namespace": "", "time_ms": %d, "event_type": "%s", "key": "%s", "value": %s, "metadata": '
    '{"file": "train.py", "lineno": %d%s}}\n'
)
GNMT_MLPERF = (
    "+ ./bind.sh --cpu=exclusive -- python -u train.py --save gnmt_wmt16 --dataset-dir /data --epochs 8 --math fp16 "
    "--max-length-train 75 --print-freq 10 --train-batch-size 256 --test-batch-size 128 --optimizer FusedAdam\n"
    + _EVENT % (1593019117722, "POINT_IN_TIME", "submission_benchmark", '"gnmt"', 19, "")
    + _EVENT % (1593019117759, "POINT_IN_TIME", "submission_platform", '"1xNVIDIA DGX-1"', 36, "")
    + _EVENT % (1593019143853, "INTERVAL_START", "run_start", "null", 430, "")
    + _EVENT % (1593019144121, "POINT_IN_TIME", "global_batch_size", "2048", 480, "")
    + """\
0: Starting epoch 0
0: TRAIN [0][0/1938]\tTime 0.451 (0.451)\tData 2.98e-01 (2.98e-01)\tTok/s 37007 (37007)\tLoss/tok 10.7019 (10.7019)\tLR 2.047e-05
0: TRAIN [0][10/1938]\tTime 0.105 (0.179)\tData 1.81e-04 (2.72e-02)\tTok/s 99337 (97805)\tLoss/tok 9.6102 (10.1416)\tLR 2.576e-05
0: TRAIN [0][40/1938]\tTime 0.156 (0.139)\tData 1.58e-04 (7.43e-03)\tTok/s 106787 (100158)\tLoss/tok 8.9311 (9.5135)\tLR 5.024e-05
0: TRAIN [0][50/1938]\tTime 0.105 (0.138)\tData 1.60e-04 (6.01e-03)\tTok/s 98044 (100531)\tLoss/tok 8.5645 (9.3629)\tLR 6.325e-05
0: TRAIN [0][60/1938]\tTime 0.208 (0.134)\tData 1.41e-04 (5.05e-03)\tTok/s 111645 (100352)\tLoss/tok 8.5204 (9.2308)\tLR 7.962e-05
0: Gradient norm: inf
0: Skipped batch, new scale: 256.0
0: TRAIN [0][70/1938]\tTime 0.106 (0.136)\tData 1.67e-04 (4.36e-03)\tTok/s 97865 (100736)\tLoss/tok 8.6956 (9.1711)\tLR 9.796e-05
0: TRAIN [0][140/1938]\tTime 0.060 (0.137)\tData 1.61e-04 (2.28e-03)\tTok/s 89681 (101699)\tLoss/tok 6.9217 (8.5723)\tLR 4.909e-04
0: TRAIN [3][1920/1938]\tTime 0.213 (0.143)\tData 1.36e-04 (2.87e-04)\tTok/s 111036 (100057)\tLoss/tok 3.2423 (3.1472)\tLR 5.000e-04
0: TRAIN [3][1930/1938]\tTime 0.107 (0.143)\tData 1.24e-04 (2.87e-04)\tTok/s 95043 (100060)\tLoss/tok 3.0361 (3.1472)\tLR 5.000e-04
"""  # noqa: E501
    + _EVENT % (1593020254857, "POINT_IN_TIME", "eval_accuracy", "0.24350000000000002", 562, ', "epoch_num": 4')
    + """\
0: TEST [3][0/3]\tTime 0.742 (0.742)\tDecoder iters 149.0 (149.0)\tTok/s 22001 (22001)
0: Summary: Epoch: 3\tTraining Loss: 3.1478\tTest BLEU: 24.35
0: Performance: Epoch: 3\tTraining: 800562 Tok/s
"""
    + _EVENT % (1593020254858, "INTERVAL_END", "run_stop", "null", 595, ', "status": "success"')
)
GNMT = "".join(line for line in GNMT_MLPERF.splitlines(keepends=True) if not line.startswith(":::MLLOG"))

# The same repository, NVIDIA/systems/dgx1_ngc20.06_pytorch.json; versions of the software left out.
MLPERF_SYSTEM = (
    json.dumps(
        {
            "submitter": "NVIDIA",
            "division": "closed",
            "status": "onprem",
            "system_name": "dgx1_ngc20.06_pytorch",
            "number_of_nodes": "1",
            "host_processors_per_node": "2",
            "accelerators_per_node": "8",
            "accelerator_model_name": "NVIDIA V100-SXM2-16GB (300W)",
            "framework": "PyTorch NVIDIA Release 20.06",
            "other_software_stack": {"nccl_version": "2.7.5"},
        },
        indent=2,
    )
    + "\n"
)

# github.com/tensorpack/tensorpack/issues/442, comment of 2017-10-16; step lines left out.
TF_CNN_COMMAND = """\
time python tf_cnn_benchmarks.py --local_parameter_device=cpu --num_gpus=2 --num_intra_threads=7 --num_inter_threads=7 \\
--batch_size=32 --model=vgg16 --variable_update=parameter_server
TensorFlow:  1.4
Model:       vgg16
Mode:        training
SingleSess:  False
Batch size:  64 global
             32 per device
Devices:     ['/gpu:0', '/gpu:1']
Data format: NCHW
Optimizer:   sgd
Variables:   parameter_server
==========
Generating model
Running warm up
Done warm up
Step\tImg/sec\tloss
1\timages/sec: 147.1 +/- 0.0 (jitter = 0.0)\t7.255
10\timages/sec: 146.6 +/- 0.3 (jitter = 0.6)\t7.255
100\timages/sec: 146.6 +/- 0.1 (jitter = 0.9)\t7.255
----------------------------------------------------------------
total images/sec: 146.38
----------------------------------------------------------------

real\t0m59.740s
"""  # noqa: E501

# github.com/tensorflow/benchmarks/issues/232, description: asynchronous workers, each with a total of its own.
TF_CNN_ASYNC = """\
TensorFlow:  1.10
Model:       alexnet
Dataset:     imagenet (synthetic)
Mode:        training
SingleSess:  False
Batch size:  4096 global
             1024.0 per device
Num batches: 100
Num epochs:  0.32
Devices:     ['/job:worker/replica:0/task:0/gpu:0']
Data format: NCHW
Layout optimizer: False
Optimizer:   sgd
Variables:   parameter_server
Sync:        False
==========
Generating model
Running warm up
Done warm up
Waiting for other replicas to finish warm up
Step\tImg/sec\ttotal_loss
1\timages/sec: 103.0 +/- 0.0 (jitter = 0.0)\tnan
"""

# Kubeflow's tf-controller examples, as their users' guide prints it (github.com/kubeflow/kubeflow, user_guide.md).
TF_CNN_KUBEFLOW = """\
INFO|2017-12-19T01:12:17|/opt/launcher.py|27| TensorFlow:  1.5
INFO|2017-12-19T01:12:17|/opt/launcher.py|27| Model:       resnet50
INFO|2017-12-19T01:12:17|/opt/launcher.py|27| Mode:        training
INFO|2017-12-19T01:12:17|/opt/launcher.py|27| SingleSess:  False
INFO|2017-12-19T01:12:17|/opt/launcher.py|27| Batch size:  32 global
INFO|2017-12-19T01:12:17|/opt/launcher.py|27| 32 per device
INFO|2017-12-19T01:12:17|/opt/launcher.py|27| Devices:     ['/job:worker/task:0/cpu:0']
INFO|2017-12-19T01:12:17|/opt/launcher.py|27| Data format: NHWC
INFO|2017-12-19T01:12:17|/opt/launcher.py|27| Optimizer:   sgd
INFO|2017-12-19T01:12:17|/opt/launcher.py|27| Variables:   parameter_server
INFO|2017-12-19T01:12:17|/opt/launcher.py|27| Sync:        True
INFO|2017-12-19T01:12:17|/opt/launcher.py|27| ==========
"""

"""Header words and what they say: one line a quantity. docs/audit.md lists them for people.

Every pattern reads a header in the form that `columns.plain` gives: lower case, no marks, underscores as blanks.
"""

# ruff: noqa: E501 (words)

from __future__ import annotations

# Words of other languages by the English one that is read for them, longer ones first where one holds another.
FOREIGN = {
    "number of": r"число|количество|кол-во|número de|numero di|nombre de|anzahl(?: der)?|nº de|qtd\.? de",
    "effective": r"effektive|efectivo|efetivo|有效",
    "batch size": r"批(?:量|次)?大小|バッチサイズ|배치 ?크기|batch-?größe|tamaño de lote",
    "gpus": r"gpu ?(?:数量?|數量?|个数|台数|수)|显卡数|卡数",
    "workers": r"工作(?:进程|线程|者)数?|ワーカー数?|워커(?: ?수)?|воркер(?:ов|ы)|trabajadores|trabalhadores",
    "threads": r"线程数?|線程數?|スレッド数?|스레드(?: ?수)?|поток(?:ов|и|а)?|hilos?",
    "processes": r"进程数?|プロセス数?|프로세스(?: ?수)?|процесс(?:ов|ы|а)?|procesos|processos|prozesse|processus|processi",
    "cores": r"核心数?|核数|コア数?|코어(?: ?수)?|ядер|ядра|núcleos|nucleos|kerne|c(?:œ|oe)urs",
    "processors": r"处理器数?|процессор(?:ов|ы)|processadores|procesadores|prozessoren|processeurs",
    "nodes": r"节点数?|節點數?|ノード数?|노드(?: ?수)?|узл(?:ов|ы)|nodos|nós|knoten|n(?:œ|oe)uds|nodi",
    "speedup": r"加速(?:比|倍数|率)?|高速化率?|速度向上率?|속도 ?향상|가속(?:비|률)?|ускорение|aceleración|aceleração|accélération"
    r"|accelerazione|beschleunigung",
    "efficiency": r"(?:并行|并发|扩展)?效率|(?:並列化?)?効率|효율(?:성)?|эффективность|eficiencia|eficiência|efficacité|efficienza|effizienz",
    "throughput": r"吞吐(?:量|率)?|スループット|처리량|пропускная способность|vazão|débit|durchsatz",
    "time": r"时间|時間|耗时|用时|시간|время|времени|tiempos?|tempos?|^temps|(?:lauf|rechen|trainings)?zeit",
    "sequential": r"串行|顺序|последовательн\w+|secuencial|sequencial|séquentiel(?:le)?|sequenziell",
    "parallel": r"并行|並列|параллельн\w+|paralel[oa]|parallèle",
    "latency": r"延迟|レイテンシ|задержка|latencia|latência|latenz",
    "bandwidth": r"带宽|帯域|bande passante|ancho de banda|bandbreite",
    "memory": r"内存|显存|メモリ|память|memoria|memória|speicher",
    "images": r"bilder|imágenes|imagens",
    "items": r"[\u3040-\u30ff\u4e00-\u9fff]+(?=/ ?秒)",
    "ms": r"毫秒|ミリ秒|мс", "min": r"分钟|分鐘|мин", "s": r"秒|сек(?:унд[ыа]?)?|с(?=\)?$)",
}  # fmt: skip

# What is counted, finest first; a table that counts two of them in columns counts its devices in the finer one.
NOUNS = {
    "gpus": r"gpu|tpu|npu|ipu|hpu|xpu|device|accelerator|card|chip|gcd|gaudi",
    "processes": r"worker|process(?:es)?|procs?|pr\.|rank|task|replica|tower|pe|learner|executor|trainer",
    "cores": r"core|cpu|processor|vcpu",
    "threads": r"thread",
    "nodes": r"node|machine|host|server|instance|vm",
}
COUNTED = rf"(?:(?:{'|'.join(NOUNS.values())})(?:s|\(s\))?)"
ACCELERATORS = (
    r"(?:(?:nvidia|amd|tesla|geforce|quadro|google|cloud|intel|xeon)[ -]?)*"
    r"(?:[vpahktlb]\d{2,3}[a-z]{0,2}(?:[ -]?\d+ ?gb)?|mi\d{2,3}x?|(?:rtx|gtx|titan)[ -]?\w*(?:[ -]ti)?|titan|m60|m40|tpu(?:[ -]?v\d\w?)?)s?"
)
_KIND_OF_DEVICE = (
    rf"(?:{ACCELERATORS}|mpi|openmp|omp|cuda|total|overall|used|physical|logical|virtual|compute|training|parallel"
    r"|horovod|ddp|spark|cpu|gpu|tpu|hardware|concurrent|active|data parallel)"
)
HOW_MANY = r"(?:(?:total )?(?:number|count|num|nb|no\.?|nr\.?|amount|total)(?: ?of)?(?: the)? ?|# ?(?:of )?|n )"
DEVICES = (
    rf"(?:(?:{_KIND_OF_DEVICE} )*{HOW_MANY})?(?:{_KIND_OF_DEVICE} )*{COUNTED}(?: ?(?:card|device|core|process(?:e)?)s?)?"
    r" ?(?:number|count|num|used|total|in total|\([#npk]\)|#)?"
    r"|(?:n|num|nb|#) ?(?:gpu|device|proc|worker|node|thread|core|rank)s?|n|p|np|nproc|nprocs|world ?size|gpu/s|# ?p"
    rf"|{COUNTED} ?[x×*] ?{COUNTED}(?: ?(?:/|per) ?{COUNTED})?"
    r"|(?:data|model) parallel(?:ism)?(?: size| degree)|parallelism"
)
PER_PART = rf"(?:{HOW_MANY})?(?P<part>{COUNTED})(?: ?(?:num|number|count))?(?: ?(?:/|per|in each|on each|a|each) ?)(?P<whole>{COUNTED})"
LISTS_OF_DEVICES = (
    r"(?:gpu|device|cuda|card)s? ?(?:ids?|index(?:es)?|indices|list)|(?:cuda )?visible (?:devices|gpus)"
    r"|ids? of (?:the )?(?:gpu|device)s?|which (?:gpu|device)s?"
)

TIME_UNITS = {
    **{"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "msecs": 1e-3},
    **{"millisecond": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "usec": 1e-6, "ns": 1e-9},
    **{"m": 60.0, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0},
    **{"毫秒": 1e-3, "秒": 1.0, "сек": 1.0, "분": 60.0, "分钟": 60.0, "мин": 60.0, "Minuten": 60.0, "小时": 3600.0},
    **{"h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0, "hours": 3600.0, "day": 86400.0, "days": 86400.0},
}
PER_SECOND = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 1 / 60),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 1 / 3600),
    **dict.fromkeys(("day", "days"), 1 / 86400),
}
# What is no item although it stands before "/s".
NO_ITEM = (
    r"(?:[kmgtp]?i?(?:b|bits?|bytes?)|(?:kilo|mega|giga|tera|peta)?(?:bits?|bytes?)|[kmgtpe]?flops?|[kmgtpe]?flop|m|meters?"
    r"|[kmg]?hz|cycles?|rad|deg|ops?/w|cost|price|usd|dollars?|\$|transfers?)"
)
ITEM_NAMES = {
    short: item
    for item, shorts in {
        "image": "img imgs im ims pic", "sample": "smp samps", "sequence": "seq seqs", "sentence": "sent sents",
        "token": "tok toks", "iteration": "it its iter iters", "example": "ex exs", "batch": "batches minibatches",
        "operation": "op ops", "word": "wd", "request": "req reqs", "frame": "frm", "query": "queries",
        "series": "series",
    }.items()
    for short in shorts.split()
}  # fmt: skip
RATE_ALIASES = {"wps": "words/s", "tps": "tokens/s", "ips": "images/s", "fps": "images/s", "qps": "queries/s"}
RATE_WORDS = r"throughput|through put|thoughput|\bspeed\b|\brate\b|\bperformance\b(?=.*/)"
NO_RATE = (
    r"clock|learning|[gtp]?flops?\b|bandwidth|hit rate|error rate|memory|drop|dropout|success|sampl\w* rate|refresh|cost"
    r"|\bloss\b|word error|frame rate|bit ?rate|failure|accept|relative|normali[sz]ed|deep speed"
)

# Times of a part: never what a speedup of the whole is of, unless the speedup's header names it too.
PARTS_OF_TIME = (
    r"comm(?:unication|s|\.)?|exchange|all-?reduce|reduce|i/?o|load(?:ing)?|init(?:iali[sz]\w*)?|set-?up|start-?up|warm-?up"
    r"|forward|backward|fwd|bwd|idle|wait(?:ing)?|sync\w*|overhead|barrier|data|pre-?process\w*|post-?process\w*|optimizer"
    r"|update|copy|transfer|read(?:ing)?|writ(?:e|ing)|save|saving|checkpoint\w*|validation|eval(?:uation)?|test(?:ing)?"
    r"|user|sys|cpu time|compil\w+|build|h2d|d2h|gradient|fetch|shuffle"
)
NO_TIME = (
    r"clock ?rate|gpu clock|clocks\b|(?<!wall)(?<!wall )(?<!wall-)clock|date|timestamp|complexity|time ?zone|time ?steps?|times faster|number of times|compile|real-?time|up-?time"
    r"|sequence|saved|timed? ?out|relative|normali[sz]ed|latency|percentile|\bp\d\d\b"
)

# (what a column says, pattern that says so, pattern that says it is something else); the first that fits.
QUANTITIES: tuple[tuple[str, str, str], ...] = (
    ("accumulation", r"\bgrad(?:ient)? ?acc\w*|\baccumulation(?: ?steps?| factor)?\b|\bacc(?:um)?\.? steps?\b", ""),
    (
        "efficiency",
        r"\beff(?:iciency|icency|ic|\.)?(?![a-z])|% of (?:linear|ideal|perfect)|percent of (?:linear|ideal)|of (?:linear|ideal) (?:speed-?up|scaling)"
        r"|% scaling|scaling ?[(\[]? ?%|scaling percent|linearity",
        r"power|energy|cpu eff|sample eff|data eff|memory|cost|comput\w+ eff|bandwidth|flops?\b|mfu|hardware|\bsm\b|cache|warp|fuel"
        r"|label|effective|storage|network|link|kernel|tokeni|loss|params?\b",
    ),
    (
        "speedup",
        r"speed-? ?ups?\b|\bscaling factors?\b|\b(?:weak|strong) scaling\b|\bscale-?up\b|\bacceleration(?: factor| ratio|$)"
        r"|^scaling(?: ratio| \(x\))?$|\btimes faster\b|\b(?:fp ?\d+|tf ?32|bf ?16|amp|mixed(?: precision)?) scaling$",
        r"\b(?:ideal|theoretical|amdahl\W?s?|predicted|expected|perfect|target|linear)\b(?! scaling)",
    ),
    (
        "global_batch_size",
        r"\b(?:global|total|effective|overall|aggregate|combined) (?:mini-?)?batch|batch ?(?:size)? ?\(?(?:global|total|overall|effective)|^gbs$|\bgbs\b",
        "",
    ),
    (
        "batch_size",
        rf"batch ?size|\bbsz?\b|\bmbs\b|^(?:local |micro-?|mini-?|train(?:ing)? )?batch(?: ?(?:/|per) ?{COUNTED})?$|^b$"
        rf"|^(?:samples|images|sequences|sentences|examples) ?(?:/|per) ?(?:{COUNTED})$",
        r"optimi[sz]ed|best|maximum|\bmax\b",
    ),
)

# Understood, but with no field of a row: named so that nobody thinks they were compared.
OTHERS: tuple[tuple[str, str], ...] = (
    ("latency", r"latency|percentile|\bp\d\d\b|\bttft\b|\btpot\b"),
    (
        "accuracy",
        r"accuracy|\bacc\.?\b|top-?[15]\b|\bf1\b|\bauc\b|\bm?ap\b|\bbleu\b|\bhr@\d+|\bdice\b|\biou\b|precision|recall|exact match|score",
    ),
    ("loss", r"\bloss\b|perplexity|\bppl\b|\bwer\b|\bcer\b|error\b"),
    ("bandwidth", r"bandwidth|\bbusbw\b|\balgbw\b|[kmgt]i?b(?:it|yte)?s? ?/ ?s"),
    (
        "part of the loss",
        r"^(?:contention|exchange|input|imbalance|fixed cost|padding|foreign load|the rest|not split)(?: [(\[,].*)?$",
    ),
    ("memory", r"memory|\bmem\b|\bram\b|\b[kmgt]i?b\b"),
    ("power", r"\bpower\b|\bwatts?\b|\bw\b|energy|joules?"),
    ("utilisation", r"utili[sz]ation|\butil\b|\busage\b|occupancy|\bmfu\b|\bhfu\b"),
    ("compute rate", r"\b[kmgtpe]?flop(?:/?s)?\b"),
    ("epochs", r"\bepochs?\b"),
    ("sequence length", r"seq(?:uence)?\.? ?len\w*|\bcontext\b|max ?len\w*"),
    ("learning rate", r"learning ?rate|^lr$"),
    ("size", r"\bparam(?:eter)?s?\b|\bhidden\b|\blayers?\b|\bsize\b|dimension|\bdim\b|resolution|\bdepth\b|\bwidth\b"),
    ("frequency", r"\b[kmg]hz\b|clock|frequency"),
    ("price", r"\bcost\b|price|\busd\b|dollar|\$"),
    ("version", r"version|release|commit|\bdate\b|driver|cuda"),
)
# What is compared with each other: networks, programs, machines.
MODELS = (
    r"inception|resnet|resnext|vgg|alexnet|google ?net|lenet|mobilenet|densenet|efficientnet|nasnet|bert|gpt|\bt5\b|transformer"
    r"|lstm|gnmt|\brnn\b|\bgru\b|seq2seq|\bncf\b|dlrm|\bssd|r-?cnn|yolo|retinanet|u-?net|\bvit\b|llama|mixtral|deep ?speech"
    r"|jasper|tacotron|waveglow|xlnet|electra|\bcnn\b|\bmlp\b|trivial|overfeat|squeezenet|\bnmt\b|\w*gan\b|diffusion|wide ?(?:&|and) ?deep"
    r"|tensorflow|pytorch|mxnet|caffe|keras|\bjax\b|paddle|cntk|chainer|horovod|parameter server|replicated|nccl|gloo|\bmpi\b"
    r"|\bddp\b|fsdp|deepspeed|megatron|v100|a100|h100|p100|k80|synthetic|real data|imagenet|cifar|mnist"
)
PARALLEL = r"parallel|multi-?[ -]?(?:gpu|thread(?:ed|ing)?|core|process(?:ing)?|node|device)|distributed"
# Two columns that a speedup beside them compares: without, and with, what the table is about.
BEFORE = r"old|before|baseline|original|reference|naive|unoptimi[sz]ed|un-?fused|eager|without|w/o|no \w+|stock|vanilla|legacy|default|traditional|sync(?:hronous)?|sequential|serial|seq|single[ -]thread(?:ed)?"
AFTER = r"new|after|optimi[sz]ed|ours|improved|current|proposed|fused|compiled|with|accelerated|tuned|custom|this work|patched|candidate|captured|adaptive|overlap(?:ped)?|async(?:hronous)?|parallel|par|multi[ -]thread(?:ed)?"
PRECISIONS = r"\bamp\b|fp ?16|fp ?32|tf ?32|bf(?:loat)? ?16|fp ?8|int ?8|mixed(?: |-)?(?:precision)?|half(?: |-)precision|single(?: |-)precision|tensor ?cores?|\bxla\b|\bdali\b|precision|float ?16|float ?32"
FULL_PRECISION = r"fp ?32|tf ?32|single(?: |-)precision|float ?32|full(?: |-)precision|\bno amp\b"

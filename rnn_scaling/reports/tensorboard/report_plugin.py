"""TensorBoard's plugin "Report": the page of the runs in the log folder, made when it is asked for.

/data/plugin/rnn_scaling/report             all runs
/data/plugin/rnn_scaling/report?run=a       run "a", or all runs below the folder "a"
/data/plugin/rnn_scaling/report?id=...      the run whose text page has this link
/data/plugin/rnn_scaling/runs               {"runs": [names]}
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from rnn_scaling.reports.page import document
from rnn_scaling.reports.tensorboard import run_text
from rnn_scaling.reports.tensorboard.log_folder import LogFolder, UnknownRunError

TAB = document.TEMPLATES / "tab.js"


class ReportPlugin(base_plugin.TBPlugin):
    """Serves the report of local log folders; inactive where no run has a record."""

    plugin_name = run_text.PLUGIN

    def __init__(self, context: base_plugin.TBContext) -> None:
        """context: TensorBoard's; only its logdir is read."""
        # The scalars' reader expands "~" itself, which a shell leaves in --logdir=~/logs.
        self._runs = LogFolder(Path(context.logdir).expanduser()) if context.logdir else None

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        """URL below the plugin's own -> WSGI application."""
        return {"/index.js": self._serve_tab, "/runs": self._serve_runs, "/report": self._serve_report}

    def is_active(self) -> bool:
        """Whether TensorBoard shows the tab."""
        return self._runs is not None and self._runs.has_runs()

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """How TensorBoard shows the tab."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="Report")

    @wrappers.Request.application  # type: ignore[arg-type]  # it takes methods, which its hint does not say
    def _serve_tab(self, request: wrappers.Request) -> wrappers.Response:
        return http_util.Respond(request, TAB.read_text(encoding="utf-8"), "application/javascript")

    @wrappers.Request.application  # type: ignore[arg-type]  # it takes methods, which its hint does not say
    def _serve_runs(self, request: wrappers.Request) -> wrappers.Response:
        return http_util.Respond(request, {"runs": self._runs.names() if self._runs else []}, "application/json")

    @wrappers.Request.application  # type: ignore[arg-type]  # it takes methods, which its hint does not say
    def _serve_report(self, request: wrappers.Request) -> wrappers.Response:
        try:
            content = self._page(request.args.get("run", ""), request.args.get("id", ""))
        except UnknownRunError as e:
            return http_util.Respond(request, f"error: {e}\n", "text/plain", code=404)
        scripts = re.findall(rb"<script>(.*?)</script>", content, re.DOTALL)
        # TensorBoard lets no script run that was not named by its hash.
        hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts]
        return http_util.Respond(request, content, "text/html", csp_scripts_sha256s=hashes)

    def _page(self, name: str, letters: str) -> bytes:
        if self._runs is None:
            raise UnknownRunError("the report needs --logdir, a folder of this machine")
        return self._runs.report(self._runs.name_of(letters) if letters else name)

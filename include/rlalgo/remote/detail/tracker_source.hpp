// python/tracker.py as text; written by scripts/embed_python.py, edit that file.
#pragma once

namespace rlalgo::remote::detail {

inline constexpr const char* tracker_source = R"PYTHON(
import os
import re

def rewritten(record):
    out = {}
    for name, value in record["values"].items():
        out["eval/" + name[5:] if name.startswith("eval_") else "train/" + name] = value
    out["train/epoch"] = record["epoch"]
    out["train/global_step"] = record["step"]
    return out


class Wandb:
    def __init__(self, run):
        import wandb

        chosen = os.environ.get("WANDB_RUN_ID")
        self.run = wandb.init(name=os.environ.get("WANDB_NAME") or run["name"], id=chosen or run["id"], resume="allow", config=run["settings"],
                              project=os.environ.get("WANDB_PROJECT", "huggingface"))
        self.run.define_metric("train/global_step")
        self.run.define_metric("*", step_metric="train/global_step", step_sync=True)

    def place(self):
        return self.run.url or "%s (offline: wandb sync it)" % self.run.dir

    def log(self, record):
        self.run.log(rewritten(record))

    def finish(self, failed):
        self.run.finish(exit_code=1 if failed else 0)


class Mlflow:
    longest = 6000  # characters of a parameter's value

    def __init__(self, run):
        import mlflow

        self.mlflow = mlflow
        if os.environ.get("MLFLOW_TRACKING_URI"):
            mlflow.set_tracking_uri(os.environ["MLFLOW_TRACKING_URI"])
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME")
        if name:
            mlflow.set_experiment(name)
        self.run = mlflow.start_run(run_name=os.environ.get("MLFLOW_RUN_NAME") or run["name"], run_id=os.environ.get("MLFLOW_RUN_ID"))
        settings = [(self.allowed(k), str(v)[: self.longest]) for k, v in run["settings"].items()]
        for begin in range(0, len(settings), 100):  # of one request
            mlflow.log_params(dict(settings[begin:begin + 100]))

    @staticmethod
    def allowed(name):
        return re.sub(r"[^\w\-. /:]", "_", name)

    def place(self):
        return "%s, run %s" % (self.mlflow.get_tracking_uri(), self.run.info.run_id)

    def log(self, record):
        values = {self.allowed(k): v for k, v in record["values"].items()}
        self.mlflow.log_metrics({**values, "epoch": record["epoch"]}, step=record["step"])

    def finish(self, failed):
        self.mlflow.end_run("FAILED" if failed else "FINISHED")


class Trackio:
    def __init__(self, run):
        import trackio

        self.trackio = trackio
        self.project = os.environ.get("TRACKIO_PROJECT_NAME") or os.environ.get("TRACKIO_PROJECT", "huggingface")
        space = os.environ.get("TRACKIO_SPACE_ID")
        trackio.init(project=self.project, name=os.environ.get("TRACKIO_RUN_NAME") or run["name"], config=run["settings"], resume="allow",
                     **({"space_id": space} if space else {}))

    def place(self):
        return "project %s (trackio show)" % self.project

    def log(self, record):
        self.trackio.log(rewritten(record), step=record["step"])

    def finish(self, failed):
        self.trackio.finish()


class Comet:
    def __init__(self, run):
        import comet_ml

        online = os.environ.get("COMET_START_ONLINE", "true").lower() not in ("false", "0", "no")
        self.experiment = comet_ml.start(online=online, project_name=os.environ.get("COMET_PROJECT_NAME"), workspace=os.environ.get("COMET_WORKSPACE"),
                                         mode=os.environ.get("COMET_START_MODE"), experiment_key=os.environ.get("COMET_EXPERIMENT_KEY"))
        self.experiment.set_name(os.environ.get("COMET_START_EXPERIMENT_NAME") or run["name"])
        self.experiment.log_parameters(run["settings"])

    def place(self):
        return getattr(self.experiment, "url", None) or "experiment %s" % self.experiment.get_key()

    def log(self, record):
        self.experiment.log_metrics(rewritten(record), step=record["step"], epoch=record["epoch"])

    def finish(self, failed):
        self.experiment.end()


TRACKERS = {"wandb": Wandb, "mlflow": Mlflow, "trackio": Trackio, "comet": Comet}
tracker = None


def attempt(what, function):
    try:
        return function()
    except Exception as error:
        if isinstance(error, ModuleNotFoundError):
            raise Refusal("load", "%s: pip install it for the Python of RLALGO_PYTHON" % error)
        raise Refusal("raised", "%s: %s: %s" % (what, type(error).__name__, error), trace_of(error))


def load(question):
    global tracker
    os.environ.update(question["environment"])
    for name, quiet in (("WANDB_SILENT", "true"), ("COMET_LOGGING_CONSOLE", "WARNING")):  # the trainer says where the run is
        os.environ.setdefault(name, quiet)
    made = attempt("it cannot be started", lambda: TRACKERS[question["tracker"]](question["run"]))
    tracker = made
    return {"place": str(attempt("it has no place", made.place))}


def work(question, line):
    if question["op"] == "finish":
        attempt("it cannot be ended", lambda: tracker.finish(question["failed"]))
        return {}
    for record in question["records"]:
        attempt("a record cannot be logged", lambda: tracker.log(record))
    return {}


if __name__ == "__main__":
    serve(load, work)
)PYTHON";

}  // namespace rlalgo::remote::detail

"""The texts of `lws --help` and of the help of Lightning's commands."""

__all__ = ["COMMANDS", "LIGHTNING_COMMANDS", "command_help", "overview"]

COMMANDS = {
    "compare": "try what your tasks should share, and write the best networks",
    "fit": "train networks, or go on with a run",
    "validate": "evaluate a checkpoint on the validation images",
    "test": "evaluate a checkpoint on the test images; add the result to its run",
    "sweep": "train and test several configurations with several seeds",
    "report": "compare runs: tables, significance tests, figures, one HTML page",
    "export": "write a task's network as a model file (pt2, ONNX, safetensors)",
    "predict": "write class probabilities of image files into a CSV file",
}
LIGHTNING_COMMANDS = ("fit", "validate", "test")

_FIT = """\
usage: lws fit --config FILE [--config OVERLAY ...] [--OPTION VALUE ...]
       lws fit --ckpt_path RUN [--OPTION VALUE ...]

Trains networks into a new folder lightning_logs/version_N, or goes on with a
run. Options come from the files, in their order, and then from the command
line.

common options:
  --config FILE                    a configuration, or an overlay over it
  --ckpt_path RUN                  go on with a run: its folder or a checkpoint
  --seed_everything N              seed of the run (default: 0)
  --data.root DIR                  folder with the images
  --data.tasks "[A, B]"            use only these tasks
  --data.batch_size N              images of each task in a step
  --data.validation split          hold validation images out
  --model CLASS                    the method, such as LearnedWeightSharing
  --model.network NAME             the base network
  --model.lr X                     learning rate of the weights
  --model.nes_lr X                 step size of the search of learned sharing
  --trainer.max_steps N            training steps
  --trainer.val_check_interval N   steps between two evaluations
  --trainer.default_root_dir DIR   where lightning_logs/ is made
  --trainer.accelerator gpu        the device (default: the best one)

all options:
  lws fit --config FILE --print_config         every option with its value
  lws fit --model.help LearnedWeightSharing    explains the options of a method
  lws fit --data.help ImageFolders             ... of a data set
  lws fit --help all                           ... of everything, Trainer, too"""

_EVALUATE = """\
usage: lws {name} --ckpt_path RUN [--OPTION VALUE ...]

{meaning}
Options come from the run's config.yaml, and then from the command line.

common options:
  --ckpt_path RUN              the folder of a run, or a checkpoint
  --config FILE                a configuration instead of the run's own
  --data.root DIR              folder with the images, if it has moved
  --trainer.accelerator gpu    the device (default: the best one)

all options:
  lws {name} --help all        everything, the Trainer's options, too"""


def overview() -> str:
    """Returns the text of `lws --help`."""
    lines = [f"  {name:<10}{meaning}" for name, meaning in COMMANDS.items()]
    return "\n".join(
        [
            "usage: lws COMMAND [OPTIONS]",
            "",
            "Learns which weights the networks of several tasks should share.",
            "",
            *lines,
            "",
            "lws COMMAND --help    the options of a command",
            "lws --version         the version",
        ]
    )


def command_help(name: str) -> str:
    """Returns the short help of one of Lightning's commands."""
    if name == "fit":
        return _FIT
    meanings = {
        "test": "Evaluates networks on the test images, and adds the result to the run's record.",
        "validate": "Evaluates networks on the validation images.",
    }
    return _EVALUATE.format(name=name, meaning=meanings[name])

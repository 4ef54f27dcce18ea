"""Meta-trains variants of a recipe with several seeds, judges each result, and writes one table.

tools/sweep/sweep.cc embeds this script and hands it the words of its command line. docs/sweep.md has the keys of
LIST.json, the files and what the table says.
"""

import argparse
import csv
import ctypes
import fcntl
import hashlib
import json
import math
import os
import pathlib
import re
import shlex
import signal
import stat
import statistics
import subprocess
import sys
import time

DONE, FAILED, TO_BE_CONTINUED = 0, 1, 75  # exit codes, those of lopt
PR_SET_PDEATHSIG = 1
BUDGET_USED_UP = "the budget is used up"
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FOREVER = 1e9  # seconds

# Options of lopt eval that are about learned optimizers, and the one of them that takes a value.
OF_LEARNED = ("--start", "--unknown-length", "--tune-learned", "--despite-failed-check")
LEARNED_OPTIMIZER = "--learned-optimizer"
REFERENCE = "Adam"  # no learned optimizer may be called so
# How the names of further results of a learned optimizer end.
ENDINGS = ("-start", "-start-0.3", "-unknown", "-tuned")

# Options whose words are the sweep's own, and no files.
NO_FILES = ("--preset", "--seed", "--baselines")
INIT_THETA = re.compile(r'"init_theta"\s*:\s*"([^"]+)"')

# As base/utf8.cc: what is not seen, or changes how what follows is; but no line's end.
NOT_PLAIN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


class Error(Exception):
    """What is wrong in the list or on the disk, for the user."""


class Stopped(Exception):
    """By a signal or the end of the budget."""


def text_of(path):
    """The text of a file; Error that says what is wrong with it. A named pipe or device would be waited for."""
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or str(path).startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/"))):
            raise Error(f"{path}: it is no file")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Error(f"{path}: it is not UTF-8: {error.reason} at byte {error.start}") from error


def contents_of(path):
    """What a record keeps of a file: its text, or a checksum of one that is no text, such as weights."""
    try:
        return text_of(path)
    except Error as error:
        if not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        return "sha256 " + hashlib.sha256(path.read_bytes()).hexdigest()


def lines_of(text):
    return [line for line in text.split("\n") if line]


def metadata_of(path):
    """The metadata of a safetensors file."""
    try:
        with open(path, "rb") as file:
            header = json.loads(file.read(min(int.from_bytes(file.read(8), "little"), path.stat().st_size)))
        return header.get("__metadata__", {})
    except (OSError, ValueError, AttributeError) as error:
        raise Error(f"{path}: it cannot be read: {error}") from error


# --- Paths in words -----------------------------------------------------------------------------


def paths_in(word):
    """What may be a path of a word of the command line: all of it, or what is behind its first =."""
    return [path for path in (word, word.partition("=")[2].strip('"')) if path]


def files_of(arguments, folder):
    """The files that the words of a piece name, and the weights that a config among them begins with; relative paths
    are relative to `folder`. Of several with one name the last is noted under it, the others with a number."""
    words = [word for before, word in zip(arguments, arguments[1:]) if before not in NO_FILES]
    named = [path for word in reversed(words) for path in paths_in(word)]
    files, seen = {}, set()
    while named:
        path = os.path.join(folder, named.pop(0))
        if os.path.normpath(path) in seen or not os.path.isfile(path):
            continue
        seen.add(os.path.normpath(path))
        name = os.path.basename(path)
        count = sum(os.path.basename(other) == name for other in seen)
        contents = contents_of(pathlib.Path(path))
        files[name if count == 1 else f"{name} ({count})"] = contents
        named += INIT_THETA.findall(contents)
    return files


def by_name(word, folder, noted=()):
    """The word with the name alone of a file or an absolute path: they may have been elsewhere. A file that is gone is
    among the names `noted`. `folder` and what is above it stay relative to it: they have other names where it is
    moved."""
    paths = paths_in(word)
    named = [path for path in paths if os.path.isabs(path) or os.path.isfile(os.path.join(folder, path))]
    named += [path for path in paths[-1:] if os.path.basename(path) in noted]
    if not named:
        return word
    relative = os.path.relpath(os.path.join(folder, named[0]), folder)
    above = set(relative.split("/")) <= {".", ".."}
    return word.replace(named[0], relative if above else os.path.basename(relative))


# --- The list -----------------------------------------------------------------------------------


def members(value, where, keys, needed=()):
    """Checks that it is an object with these keys, {name: type}."""
    if not isinstance(value, dict):
        raise Error(f"{where}: wanted an object with {', '.join(keys)}, got {json.dumps(value)}")
    for key, member in value.items():
        if key not in keys:
            raise Error(f"{where}: unknown key '{key}'; valid keys: {', '.join(keys)}")
        kind = keys[key]
        if not isinstance(member, kind):
            wanted = {str: "a text", list: "a list", dict: "an object"}[kind]
            raise Error(f"{where}.{key}: wanted {wanted}, got {json.dumps(member)}")
    for key in needed:
        if key not in value:
            raise Error(f"{where}: '{key}' is missing")
    return value


def words(value, where, what):
    for word in value:
        if not isinstance(word, str):
            raise Error(f"{where}: wanted a list of {what}, got {json.dumps(word)} in it")
    return value


def options(value, where, taken):
    for word in words(value.get("options", []), f"{where}.options", "words of the command line"):
        if word.split("=")[0] in taken:
            raise Error(f"{where}.options: {word} is the sweep's to say; not one of {', '.join(taken)}")
    return value.get("options", [])


def without_learned(judge):
    """The words of `lopt eval` but those that are about learned optimizers."""
    kept, rest = [], iter(judge)
    for word in rest:
        if word == LEARNED_OPTIMIZER:
            next(rest, None)  # its value
        elif word not in OF_LEARNED and not word.startswith(LEARNED_OPTIMIZER + "="):
            kept.append(word)
    return kept


class SweepList:
    """What LIST.json says. Paths in it are relative to its folder."""

    def __init__(self, path):
        text = text_of(path)
        try:
            read = json.loads(text, object_pairs_hook=self._distinct)
        except ValueError as error:
            raise Error(f"{path}: not JSON: {error}") from error
        # Where it is; where it comes from a pipe, that of the caller.
        self.folder = path.resolve().parent if path.is_file() else pathlib.Path.cwd()
        self._where = str(path)
        keys = {"meta_train": dict, "variants": dict, "seeds": list, "eval": dict, "data_dir": str, "theta": str}
        members(read, self._where, keys, ("variants", "seeds", "eval"))
        data_dir = ["--data-dir", str(self.folder / read["data_dir"])] if "data_dir" in read else []
        self.theta = {"last": "theta.safetensors", "best": "theta_best.safetensors"}.get(read.get("theta", "last"))
        if self.theta is None:
            raise Error(f"{path}: theta: wanted \"last\" or \"best\", got {json.dumps(read['theta'])}")
        self.seeds = read["seeds"]
        for seed in self.seeds:
            if type(seed) is not int or seed < 0 or self.seeds.count(seed) > 1:
                raise Error(f"{path}: seeds: wanted different whole numbers from 0, got {json.dumps(self.seeds)}")
        if not self.seeds or not read["variants"]:
            raise Error(f"{path}: '{'variants' if self.seeds else 'seeds'}' is empty")
        base = members(
            read.get("meta_train", {}), f"{path}: meta_train",
            {"preset": str, "config": str, "set": list, "options": list},
        )  # fmt: skip
        if base and not any(isinstance(variant, list) for variant in read["variants"].values()):
            raise Error(f"{path}: meta_train: no variant is a list of settings to add to it")
        # Of every variant its words for `lopt meta-train`, by its name.
        self.variants = {}
        for name, variant in read["variants"].items():
            if name == REFERENCE:
                raise Error(f"{path}: variants: '{name}' is the baseline that others are compared with; take another name")
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or name.endswith(ENDINGS):
                raise Error(
                    f"{path}: variants: '{name}' cannot be a name; wanted letters, digits, '.', '_' and '-', "
                    "not beginning with one of the last three nor ending as results of another way of judging do "
                    f"({', '.join(ENDINGS)})"
                )
            where = f"{self._where}: variants.{name}"
            if isinstance(variant, list):
                variant = base | {"set": [*base.get("set", []), *variant]}
                where = f"{self._where}: meta_train with variants.{name}"
            self.variants[name] = self._recipe(variant, where) + data_dir
        judged = members(
            read["eval"], f"{path}: eval", {"preset": str, "tasks": str, "baselines": str, "options": list}
        )
        taken = ("--preset", "--tasks", "--baselines", "--theta", "--data-dir", "--out", "--resume", "--overwrite")
        self.judge = self._source(judged, f"{path}: eval", "tasks", "--tasks")
        self.judge += options(judged, f"{path}: eval", taken) + data_dir
        self.baselines = judged.get("baselines", "all")

    @staticmethod
    def _distinct(pairs):
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"the key '{key}' is there twice")
        return dict(pairs)

    def _source(self, value, where, file_key, file_option):
        if ("preset" in value) == (file_key in value):
            raise Error(f"{where}: wanted a 'preset' or a '{file_key}', got {'both' if 'preset' in value else 'none'}")
        if "preset" in value:
            return ["--preset", value["preset"]]
        file = self.folder / value[file_key]
        if not file.is_file():
            raise Error(f"{where}.{file_key}: there is no file {file}")
        return [file_option, str(file)] if file_option else [str(file)]

    def _recipe(self, value, where):
        members(value, where, {"preset": str, "config": str, "set": list, "options": list})
        taken = ("--preset", "--set", "--seed", "--data-dir", "--out", "--resume", "--overwrite", "--from")
        recipe = self._source(value, where, "config", None)
        for setting in words(value.get("set", []), f"{where}.set", "texts KEY=VALUE"):
            if "=" not in setting:
                raise Error(f"{where}.set: wanted texts KEY=VALUE, got '{setting}'")
            recipe += ["--set", setting]
        return recipe + options(value, where, taken)


# --- Pieces -------------------------------------------------------------------------------------


class Piece:
    """One call of lopt, which may take several parts. Its record, beside its folder, says with what it began, whether
    it is finished and how long it took."""

    def __init__(self, kind, title, folder, arguments, list_folder, theta=None):
        """`theta`: the name and the file, in the sweep's folder, of what is judged."""
        self.kind, self.title, self.folder, self.arguments, self.theta = kind, title, folder, arguments, theta
        self._record = folder.with_name(folder.name + ".json")
        self.log = folder.with_name(folder.name + ".log")
        self.finished, self.seconds = False, 0.0
        # What it does: its words, with files by their names and contents.
        self._settings = {
            "arguments": [by_name(word, list_folder) for word in arguments],
            "files": files_of(arguments, list_folder),
            "theta": theta[1].name if theta else None,
        }
        if self._record.exists():
            self._read_record(list_folder)

    def _read_record(self, list_folder):
        now = self._settings
        try:
            stored = json.loads(text_of(self._record))
            noted, theta = stored["files"], stored["theta"]
            began = [by_name(word, list_folder, noted) for word in stored["arguments"]]
            arguments = [by_name(word, list_folder, noted) for word in self.arguments]
            # An earlier version did not note all files.
            changed = [name for name, text in now["files"].items() if noted.get(name, text) != text]
            files = {**noted, **now["files"]}
            finished, seconds = stored["finished"], float(stored["seconds"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Error(f"{self._record} is damaged ({error!r}); remove {self.folder.parent}") from error
        if began == arguments and theta == now["theta"] and not changed:
            self.finished, self.seconds = finished, seconds
            self._settings = {**now, "arguments": arguments, "files": files}  # with those that are gone
        elif finished or self.how_to_begin() == ["--resume"]:
            what = f"{shlex.join(began)} then, {shlex.join(arguments)} now"
            if theta != now["theta"]:
                what = f"judging {theta} then, {now['theta']} now"
            elif began == arguments:
                what = f"other contents of {', '.join(changed)}"
            raise Error(
                f"{self.title}: it was begun with other settings: {what}; give the variant another name, or remove "
                f"{self.folder.parent}"
            )

    def write_record(self):
        self._record.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._record.with_name(self._record.name + ".tmp")
        record = {"finished": self.finished, "seconds": self.seconds} | self._settings
        unfinished.write_text(json.dumps(record, indent=2) + "\n")
        unfinished.replace(self._record)

    def read(self, name, what):
        """What the function `what` makes of the text of one of its files, once it is finished."""
        try:
            return what(text_of(self.folder / name))
        except Error as error:
            cause, why = error, str(error)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            cause, why = error, f"{self.folder / name} is damaged ({error!r})"
        # Who trains anew judges anew.
        wrong = self.folder.parent if self.kind == "meta-train" else f"{self.folder} and {self._record}"
        raise Error(f"{why}; remove {wrong}, and it is made anew") from cause

    def data(self):
        """What it has read from files, with checksums; None if that is not known."""
        if self.kind == "eval":
            return self.read("manifest.json", lambda text: json.loads(text).get("data"))
        checkpoints = sorted((self.folder / "checkpoints").glob("step-*/learner.safetensors"))
        metadata = metadata_of(checkpoints[-1]) if checkpoints else {}
        return metadata.get("held_out_data", metadata.get("data"))

    def tuner(self):
        """The version of the tuner of an evaluation, as its manifest has it; 1 where it says none."""
        return self.read("manifest.json", lambda text: json.loads(text).get("tuner", 1))

    def tasks_ended(self):
        """How many results of an evaluation the next call goes on after: those of whole tasks."""
        results = self.folder / "results.jsonl"
        return len(lines_of(text_of(results))) if results.is_file() else 0

    def how_to_begin(self):
        # Of the files that an evaluation begins with the results are the last.
        there = self.folder / ("checkpoints" if self.kind == "meta-train" else "results.jsonl")
        if there.is_file() or (there.is_dir() and any(there.iterdir())):
            return ["--resume"]
        return ["--overwrite"] if self.folder.exists() else []


class Sweep:
    def __init__(self, sweep_list, out, program=(), plugins=()):
        """`program`: the words that run lopt. `plugins`: files for all that it runs."""
        self.list, self.out, self.program = sweep_list, out, program
        self._plugins = [word for plugin in plugins for word in ("--plugin", os.path.abspath(plugin))]
        self.failed = []  # titles of pieces, in this call
        self.baselines = None
        if sweep_list.baselines != "none":
            # The learned optimizer is no part of it: baselines do not depend on theta.
            judge = without_learned(sweep_list.judge)
            self.baselines = Piece(
                "eval", "baselines", out / "baselines" / "eval", ["eval", *judge, "--baselines", sweep_list.baselines],
                sweep_list.folder,
            )  # fmt: skip
        # (meta-training, evaluation) by variant and seed, all variants' first seeds first.
        self.runs = {}
        for seed in sweep_list.seeds:
            for name, recipe in sweep_list.variants.items():
                folder = out / "runs" / name / f"seed-{seed}"
                title = f"{name}, seed {seed}"
                self.runs[name, seed] = (
                    Piece("meta-train", title, folder / "meta-train", ["meta-train", *recipe, "--seed", str(seed)],
                          sweep_list.folder),
                    Piece("eval", title, folder / "eval", ["eval", *sweep_list.judge, "--baselines", "none"],
                          sweep_list.folder, (name, folder / "meta-train" / sweep_list.theta)),
                )  # fmt: skip

    def require_same_data(self):
        """Error unless the finished evaluations have read the same data, and a variant's meta-trainings too: their
        figures would not compare."""
        groups = {"judged": [self.baselines] if self.baselines else []}
        for (name, _), (trained, judged) in self.runs.items():
            groups.setdefault(f"trained {name}", []).append(trained)
            groups["judged"].append(judged)
        for pieces in groups.values():
            known = [(piece, piece.data()) for piece in pieces if piece.finished]
            known = [(piece, data) for piece, data in known if data is not None]
            for piece, data in known[1:]:
                first, wanted = known[0]
                if data != wanted:
                    raise Error(
                        f"{piece.title}: {piece.kind} read {data or 'no files'}, that of {first.title} read "
                        f"{wanted or 'no files'} (data sets with their CRC-32), so they do not compare; bring the same "
                        f"files back and remove {piece.folder.parent}, or begin a sweep in another folder (--out)"
                    )

    def require_comparable(self):
        """Error where what is finished does not belong into one table."""
        self.require_same_data()
        self.require_one_tuner()

    def require_one_tuner(self):
        """Error where tuned steps are judged and the finished evaluations have been tuned in different ways: their
        figures would not compare."""
        if "--tune-learned" not in self.list.judge:
            return  # the baselines alone are tuned, in one evaluation
        judged = ([self.baselines] if self.baselines else []) + [run[1] for run in self.runs.values()]
        judged = [piece for piece in judged if piece.finished]
        for piece in judged[1:]:
            if piece.tuner() != judged[0].tuner():
                raise Error(
                    f"{piece.title}: its evaluation was tuned by version {piece.tuner()} of the tuner ('tuner' in "
                    f"manifest.json), that of {judged[0].title} by version {judged[0].tuner()}, so they do not "
                    f"compare; remove those of one version under {self.out}, or begin a sweep in another folder (--out)"
                )

    def is_finished(self, run):
        return all(piece.finished for piece in self.runs[run])

    def unfinished(self):
        return [run for run in self.runs if not self.is_finished(run)]

    def estimate(self, run):
        """Seconds that the run still needs, by those of finished pieces: of this variant, else of all; 0 where there
        are none."""
        total = 0
        for piece, place in zip(self.runs[run], (0, 1)):
            if piece.finished:
                continue
            of_all = {other: pieces[place].seconds for other, pieces in self.runs.items() if pieces[place].finished}
            own = [seconds for other, seconds in of_all.items() if other[0] == run[0]]
            total += max(0, max(own or of_all.values(), default=0) - piece.seconds)
        return total

    # --- Running --------------------------------------------------------------------------------

    def run(self, budget, stops):
        """Runs what is not finished, and notes what failed. `stops`: the signals, blocked, that ask to stop."""
        self.require_comparable()
        self._stops = stops
        start = time.monotonic()
        self._budget, self._end = budget, start + budget
        self._pieces_begun = 0
        not_started = {}  # seconds that they need, by run
        if self.baselines and not self.baselines.finished:
            if not self._run_piece(self.baselines):
                return
        for run in self.unfinished():
            left = self._end - time.monotonic()
            needed = self.estimate(run)
            if left <= 0:
                raise Stopped(BUDGET_USED_UP)
            if needed > left:
                say(f"{self.runs[run][0].title}: not started; it needs {duration(needed)} by the time of earlier "
                    f"runs, {duration(left)} of the budget are left")  # fmt: skip
                not_started[run] = needed
                continue
            for piece in self.runs[run]:
                if not piece.finished and not self._run_piece(piece):
                    break
        if not_started and self._pieces_begun == 0:
            run = min(not_started, key=not_started.get)
            raise Error(f"--budget: {duration(budget)} is shorter than each run that is left, so the same command would never "
                        f"start one; wanted more than {duration(not_started[run])}, for {self.runs[run][0].title}")  # fmt: skip

    def _run_piece(self, piece):
        """False if it failed, which is noted. Throws Stopped if it was told to stop, by a signal or the end of the
        budget, and after it where a signal came."""
        begin = piece.how_to_begin()
        if self._end <= time.monotonic():
            raise Stopped(f"{piece.title}: {piece.kind} is not started, {BUDGET_USED_UP}")
        piece.write_record()
        self._pieces_begun += 1
        ended_before = piece.tasks_ended() if piece.kind == "eval" else 0
        theta = ["--theta", f"{piece.theta[0]}={piece.theta[1]}"] if piece.theta else []
        command = [*self.program, *piece.arguments, *theta, *self._plugins, "--out", str(piece.folder), *begin]
        say(f"{piece.title}: {piece.kind}{', goes on' if begin == ['--resume'] else ''}")
        start = time.monotonic()
        with open(piece.log, "a", encoding="utf-8", errors="surrogateescape") as log:
            # Paths in the list are relative to its folder.
            print(f"$ cd {shlex.quote(str(self.list.folder))} && {shlex.join(command)}", file=log, flush=True)
            child = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.list.folder,
                                     env=environment(self.program), preexec_fn=prepare_child(os.getpid()))  # fmt: skip
            why = self._wait(child)
        piece.seconds += time.monotonic() - start
        piece.finished = child.returncode == DONE
        piece.write_record()
        if piece.finished:
            self.require_comparable()
        elif why and child.returncode in (TO_BE_CONTINUED, -signal.SIGTERM):
            whole_budget = self._pieces_begun == 1 and why == BUDGET_USED_UP
            if piece.kind == "eval" and whole_budget and piece.tasks_ended() <= ended_before:
                raise Error(f"--budget: {duration(self._budget)} is shorter than one task of the evaluation takes ({piece.title}), "
                            "and a stop keeps whole tasks alone, so the same command would never go on; take a longer one")  # fmt: skip
            raise Stopped(f"{piece.title}: {piece.kind} is stopped, {why}; it can be resumed")
        else:
            lines = piece.log.read_text(encoding="utf-8", errors="replace").splitlines()
            say(f"{piece.title}: {piece.kind} failed with exit code {child.returncode} ({piece.log}): {lines[-1]}")
            self.failed.append(piece.title)
        if why and why != BUDGET_USED_UP:
            raise Stopped(f"stopped {why} after {piece.title}: {piece.kind}")
        return piece.finished

    def _wait(self, child):
        """Waits for its end, and tells it to end with the budget or at a signal; returns why it did, or why nothing is
        to follow it."""
        why = ""
        while child.poll() is None:
            number = next_signal({*self._stops, signal.SIGCHLD}, FOREVER if why else self._end - time.monotonic())
            if number != signal.SIGCHLD:
                why = f"by {number.name}" if number else BUDGET_USED_UP
                child.send_signal(signal.SIGTERM)
        number = next_signal(self._stops, 0)  # that came with its end
        return f"by {number.name}" if number else why

    # --- The table ------------------------------------------------------------------------------

    def write_table(self):
        """table.md and table.csv of what is finished; returns the former."""
        self.require_comparable()
        table = Table(self)
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "table.md").write_text(table.markdown(), encoding="utf-8")
        with open(self.out / "table.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(table.rows())
        return table.markdown()


def next_signal(numbers, seconds):
    """The first of these signals, which are blocked, that comes in so much time; None for none."""
    if seconds >= FOREVER:
        return signal.Signals(signal.sigwaitinfo(numbers).si_signo)
    taken = signal.sigtimedwait(numbers, max(0, seconds))
    return signal.Signals(taken.si_signo) if taken else None


def prepare_child(parent):
    """What a child does first, so that it does not outlive a sweep that is killed, and takes its own signals."""
    prctl = ctypes.CDLL(None).prctl

    def prepare():
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(FAILED)
        os.setpgid(0, 0)  # Ctrl-C is the sweep's to hand on
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*STOPS, signal.SIGCHLD})

    return prepare


def environment(program):
    """That of a child, which works in another folder."""
    own = dict(os.environ)
    for name in ("LOPT_MODULE_DIR", "TMPDIR"):
        if own.get(name):
            own[name] = os.path.abspath(own[name])
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        if own.get(name):
            own[name] = ":".join(map(os.path.abspath, own[name].split(":")))
    if len(program) > 1 and not own.get("PYTHONSAFEPATH"):  # python -m lopt looks for it here first
        own["PYTHONPATH"] = ":".join(filter(None, [os.getcwd(), own.get("PYTHONPATH")]))
    return own


# --- Numbers ------------------------------------------------------------------------------------


def interquartile_mean(values):
    """As lopt's: the mean without the lowest and highest quarter, rounded down; infinite if it is not finite."""
    ordered = sorted(math.inf if math.isnan(v) else v for v in values)
    cut = len(ordered) // 4
    middle = ordered[cut : len(ordered) - cut]
    return sum(middle) / len(middle)


def read_results(text):
    """{(task, steps): {optimizer: its results there}}, in their order; a diverged training has an infinite loss."""
    cells = {}
    for line in lines_of(text):
        run = json.loads(line)
        for i, steps in enumerate(run["steps"]):
            results = cells.setdefault((run["task"], steps), {}).setdefault(
                run["optimizer"], {"losses": [], "tuning_loss": None}
            )
            results["losses"].append(math.inf if run["diverged"][i] else float(run["test_loss"][i]))
            if run["learning_rate"] and run["tuning_loss"]:  # a baseline that is tuned
                results["tuning_loss"] = float(run["tuning_loss"][i])
    if not cells:
        raise ValueError("no results")
    return cells


def read_held_out(text):
    """{updates: eval_loss} of a meta-training's metrics."""
    records = [json.loads(line) for line in lines_of(text)]
    return {r["step"]: float(r["eval_loss"]) for r in records if r.get("eval_loss") is not None}


class Table:
    def __init__(self, sweep):
        self._sweep = sweep
        self._versions = set()
        # Interquartile means over the trainings: of each optimizer's seeds by cell, of baselines and the best of them.
        self._losses = {}  # {optimizer: {cell: [of each meta-training seed]}}
        self._baselines = {}  # {cell: {name: loss}}
        self._best = {}  # {cell: name}, chosen by the loss on inner_valid
        self._cells = []
        self._held_out = {}  # {variant: eval_loss of its meta-trainings}
        if sweep.baselines and sweep.baselines.finished:
            for cell, optimizers in self._read(sweep.baselines).items():
                self._baselines[cell] = {n: interquartile_mean(r["losses"]) for n, r in optimizers.items()}
                tuned = [n for n in optimizers if optimizers[n]["tuning_loss"] is not None]
                if len(tuned) > 1:  # as lopt eval: of one there is no best
                    self._best[cell] = min(tuned, key=lambda n: optimizers[n]["tuning_loss"])
        for name in sweep.list.variants:
            self._losses[name] = {}
            for seed in sweep.list.seeds:
                if not sweep.is_finished((name, seed)):
                    continue
                trained = sweep.runs[name, seed][0]
                held_out = trained.read("metrics.jsonl", read_held_out)
                if sweep.list.theta == "theta.safetensors":
                    of_theta = held_out.get(trained.read("manifest.json", lambda text: json.loads(text)["updates"]))
                else:
                    of_theta = min((loss for loss in held_out.values() if not math.isnan(loss)), default=None)
                if of_theta is not None:
                    self._held_out.setdefault(name, []).append(of_theta)
                for cell, optimizers in self._read(sweep.runs[name, seed][1]).items():
                    for optimizer, results in optimizers.items():
                        losses = self._losses.setdefault(optimizer, {}).setdefault(cell, [])
                        losses.append(interquartile_mean(results["losses"]))

    def _read(self, piece):
        version = piece.read("manifest.json", lambda text: "lopt {version} on {isa}".format(**json.loads(text)))
        self._versions.add(version)
        results = piece.read("results.jsonl", read_results)
        self._cells += [cell for cell in results if cell not in self._cells]
        return results

    def _unit(self, cell):
        return self._baselines[cell][self._best[cell]] if cell in self._best else None

    def _ratio(self, loss, cell):
        """The loss as a fraction of the best baseline's; None where that says nothing."""
        unit = self._unit(cell)
        return loss / unit if unit is not None and loss > 0 and 0 < unit < math.inf else None

    def _ratios(self, optimizer):
        """The geometric mean over cells of losses as fractions of the best baseline's, of each seed."""
        logs = {}
        for cell, losses in self._losses[optimizer].items():
            for seed, loss in enumerate(losses):
                ratio = self._ratio(loss, cell)
                if ratio is not None:
                    logs.setdefault(seed, []).append(math.log(ratio))
        return [math.exp(sum(of_seed) / len(of_seed)) for of_seed in logs.values()]

    def _lowest(self, optimizer):
        """Of how many cells with baselines its mean is at or below all of these, and how many there are."""
        compared = [cell for cell in self._losses[optimizer] if cell in self._baselines]
        lowest = sum(mean(self._losses[optimizer][cell]) <= min(self._baselines[cell].values()) for cell in compared)
        return f"{lowest} of {len(compared)}" if compared else "-"

    def _name(self, cell):
        several = sum(other[0] == cell[0] for other in self._cells) > 1
        name = markdown_name(cell[0])
        return f"{name}, {cell[1]} steps" if several else name

    def markdown(self):
        sweep = self._sweep
        left = sweep.unfinished()
        text = f"{len(sweep.runs) - len(left)} of {len(sweep.runs)} runs are finished"
        text += f"; left: {'; '.join(sweep.runs[run][0].title for run in left)}.\n\n" if left else ".\n\n"
        text += (
            "Test losses are interquartile means over the trainings of an evaluation; here are their mean and, after ±, their "
            "standard deviation over the seeds of meta-training. The best baseline of a task has the lowest loss on "
            "inner_valid of all when they are tuned. The fraction of its loss is the geometric mean over tasks; lowest says "
            "on how many tasks the mean is at or below every baseline's test loss."
        )
        if self._held_out:
            text += " The held-out loss is meta-training's own (eval_loss), which no test example enters: choose by it."
        text += "\n\n"
        rows = []
        for name, cells in self._losses.items():
            seeds = max((len(losses) for losses in cells.values()), default=0)
            held_out = [spread(self._held_out.get(name, []))] if self._held_out else []
            rows.append([markdown_name(name), str(seeds), *held_out, spread(self._ratios(name)), self._lowest(name)])
        header = ["variant", "seeds", *(["held-out loss"] if self._held_out else [])]
        text += markdown_table([*header, "test loss / best baseline's", "lowest"], rows) + "\n"
        if self._cells:
            rows = []
            for cell in self._cells:
                row = [self._name(cell)]
                if self._best:
                    row.append(f"{number(self._unit(cell))} ({markdown_name(self._best[cell])})" if cell in self._best else "-")
                rows.append(row + [spread(self._losses[name].get(cell, [])) for name in self._losses])
            header = ["task", *(["best baseline"] if self._best else []), *map(markdown_name, self._losses)]
            text += markdown_table(header, rows) + "\n"
        return text + "".join(f"{version}\n" for version in sorted(self._versions))

    def rows(self):
        """Of the CSV."""
        yield ["variant", "task", "steps", "seeds", "test_loss_mean", "test_loss_sd", "best_baseline", "best_baseline_loss", "ratio"]  # fmt: skip
        for name, cells in self._losses.items():
            for (task, steps), losses in cells.items():
                unit = self._unit((task, steps))
                ratio = self._ratio(mean(losses), (task, steps))
                sd = statistics.stdev(losses) if len(losses) > 1 and all(map(math.isfinite, losses)) else ""
                yield [name, task, steps, len(losses), mean(losses), sd, self._best.get((task, steps), ""),
                       "" if unit is None else unit, "" if ratio is None else ratio]  # fmt: skip


def mean(values):
    return sum(values) / len(values)


def number(value):
    return f"{value:.3g}"


def spread(values):
    """Mean and standard deviation."""
    if not values:
        return "-"
    if len(values) == 1 or not all(map(math.isfinite, values)):
        return number(mean(values))
    return f"{number(mean(values))} ± {statistics.stdev(values):.2g}"


def plain(text):
    """The text as PlainLines of base/utf8.h: with \\x1b in place of a byte that could drive a terminal."""

    def shown(match):
        no_utf8 = "\udc80" <= match[0] <= "\udcff"  # a byte of a path that is none
        encoded = match[0].encode("utf-8", "surrogateescape" if no_utf8 else "surrogatepass")
        return "".join(f"\\x{byte:02x}" for byte in encoded)

    return NOT_PLAIN.sub(shown, text)


def markdown_name(name):
    """A name as Markdown shows it, in one line, as MarkdownName of evaluation/tables.h."""
    marked = re.sub(r"[|*`<\\\[\]~&]", r"\\\g<0>", re.sub(r"[\x00-\x1f\x7f]", " ", name))
    return plain(re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", marked, flags=re.ASCII))  # a_b is plain


def markdown_table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def duration(seconds):
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def show(text, end="\n"):
    """Prints it; a sweep does not end because its terminal is gone or a log's disk is full."""
    try:
        print(plain(text), end=end, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(line):
    show(f"{time.strftime('%H:%M:%S')} {line}")


# --- The program --------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser()  # of words that are right: the program has read them
    parser.add_argument("--list", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--budget", type=float, default=math.inf)  # seconds
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--program", action="append")
    parser.add_argument("--plugin", action="append", default=[])
    arguments = parser.parse_args()
    if sys.stdout is None:  # it was closed
        sys.stdout = open(os.devnull, "w")
    sys.stdout.reconfigure(encoding="utf-8")
    out = pathlib.Path(os.path.realpath(arguments.out or pathlib.Path("runs") / arguments.list.stem))
    try:
        return sweep_in(out, arguments)
    except OSError as error:
        raise Error(f"{error.filename or out}: {error.strerror}") from error


def sweep_in(out, arguments):
    sweep_list = SweepList(arguments.list)
    if arguments.table:
        show(Sweep(sweep_list, out).write_table(), end="")
        return DONE
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Error(f"another sweep works in {out}") from error
        sweep = Sweep(sweep_list, out, arguments.program, arguments.plugin)
        # Under nohup SIGHUP stays ignored, by what is run too.
        ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        stops = {number for number in STOPS if not (ignored and number == signal.SIGHUP)}
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored none comes
        signal.pthread_sigmask(signal.SIG_BLOCK, {*stops, signal.SIGCHLD})  # for next_signal
        try:
            sweep.run(arguments.budget, stops)
        except Stopped as stopped:
            say(str(stopped))
        show("\n" + sweep.write_table())
    show(f"The table is in {out}/table.md and table.csv")
    if sweep.failed:
        show(f"Failed: {'; '.join(sweep.failed)}")
        return FAILED
    if sweep.unfinished():
        show("The same command goes on")
        return TO_BE_CONTINUED
    return DONE


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Error as error:
        print(f"lopt: {plain(str(error))}", file=sys.stderr)
        sys.exit(FAILED)

"""The @triton.autotune decorator of one kernel: found, read, and rewritten through a concrete syntax tree."""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.errors import DecoratorUnknownError, KeyUnknownError
from app.kernel.source import Function, KernelSource, arguments, find_kernel, parse_source
from app.kernel.variant import KernelConfig

if TYPE_CHECKING:
    import libcst

# Triton's own defaults for a Config that leaves them out.
_DEFAULT_WARPS, _DEFAULT_STAGES = 4, 3
_PARAMETERS = ("configs", "key")
_CONFIG_FIELDS = ("kwargs", "num_warps", "num_stages")
_FORMS = (ast.List, ast.Tuple, ast.ListComp, ast.Call, ast.Name, ast.Attribute, ast.BinOp, ast.IfExp)

# Arguments that a message lists; of more, those nearest to what was written.
MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Autotune:
    """The decorator's call on a kernel, with the expressions it gives for configs and key."""

    source: KernelSource
    function: Function
    call: ast.Call
    configs: ast.expr
    key: ast.expr | None

    def read_configs(self) -> list[KernelConfig]:
        """The list of configs; DecoratorUnknownError when it is not written out."""
        if not isinstance(self.configs, ast.List | ast.Tuple):
            raise self.unknown(f"its configs are {_form(self.configs)}, not a written-out list")
        return [self._config(element) for element in self.configs.elts]

    def read_key(self) -> tuple[str, ...]:
        """The names in the key; DecoratorUnknownError when they are not written out."""
        try:
            names = ast.literal_eval(self.key) if self.key else ()
        except (ValueError, TypeError, RecursionError) as error:
            raise self.unknown("its key is not a written-out list of names") from error
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise self.unknown("its key is not a written-out list of names")
        return tuple(names)

    def rewritten(self, configs: Sequence[KernelConfig] | None, key: Sequence[str] | None) -> str:
        """The call's text with other configs, another key, or both; equal ones stay as they are written."""
        texts = {}
        if configs is not None and not self._has_configs(configs):
            texts["configs"] = self._configs_text(configs)
        if key is not None and not self._has_key(key):
            texts["key"] = self._key_text(key)
        return self._replaced(texts) if texts else self.source.segment(self.call)

    def unknown(self, why: str) -> DecoratorUnknownError:
        """The error to raise about this decorator."""
        return DecoratorUnknownError(f"line {self.call.lineno}: autotune of {self.function.name!r}: {why}")

    def _has_configs(self, configs: Sequence[KernelConfig]) -> bool:
        try:
            # By their text, so that 1 and True are two.
            return [str(config) for config in self.read_configs()] == [str(config) for config in configs]
        except DecoratorUnknownError:
            return False

    def _has_key(self, key: Sequence[str]) -> bool:
        try:
            return self.read_key() == tuple(key)
        except DecoratorUnknownError:
            return False

    def _configs_text(self, configs: Sequence[KernelConfig]) -> str:
        self._check_form()
        self._check_constants(configs)
        line = self.source.line(self.configs.lineno)
        indent, end, name = line[: len(line) - len(line.lstrip(" \t"))], self._line_end(), self._config_name()
        rows = [f"{indent}    {name}({_config_arguments(config)}),{end}" for config in configs]
        return f"[{end}{''.join(rows)}{indent}]"

    def _key_text(self, key: Sequence[str]) -> str:
        if self.key is None:
            raise self.unknown("it has no key argument to replace")
        known = arguments(self.function)
        if strangers := [name for name in key if name not in known]:
            raise self._no_argument("key ", strangers)
        return json.dumps(list(key))

    def _no_argument(self, what: str, strangers: Sequence[str]) -> KeyUnknownError:
        known, its = arguments(self.function), "its arguments"
        if len(known) > MOST_SHOWN:
            its = f"of its {len(known)} arguments, nearest first"
            known = tuple(difflib.get_close_matches(strangers[0], known, n=MOST_SHOWN, cutoff=0))
        said = f"{what}{', '.join(strangers)} names no argument of {self.function.name!r}"
        return KeyUnknownError(f"{said}; {its}: {', '.join(known)}")

    def _replaced(self, texts: Mapping[str, str]) -> str:
        # Deferred: loading it is a third of a check whose kernels are compiled already, and not every check rewrites.
        import libcst

        written = self.source.segment(self.call)
        render = libcst.Module([], default_newline=self._line_end()).code_for_node
        try:
            call = libcst.parse_expression(written)
            if not isinstance(call, libcst.Call) or render(call) != written:
                raise self.unknown("it cannot be held byte for byte")
            args = [
                arg.with_changes(value=libcst.parse_expression(text))
                if (text := texts.get(_parameter(arg, i)))
                else arg
                for i, arg in enumerate(call.args)
            ]
            return render(call.with_changes(args=args))
        except libcst.ParserSyntaxError as error:
            raise self.unknown("it cannot be read apart from the parentheses around it") from error
        except RecursionError as error:
            raise self.unknown("it is nested too deeply") from error

    def _line_end(self) -> str:
        line = self.source.line(self.call.lineno)
        return line[len(line.rstrip("\r\n")) :] or "\n"

    def _check_form(self) -> None:
        if not isinstance(self.configs, _FORMS) or any(isinstance(n, ast.NamedExpr) for n in ast.walk(self.configs)):
            raise self.unknown(f"its configs are {_form(self.configs)}")
        for call in self._config_calls():
            fields = [keyword.arg or "**" for keyword in call.keywords] + list(_CONFIG_FIELDS)[: len(call.args)]
            if strange := sorted(set(fields) - set(_CONFIG_FIELDS)) or call.args[len(_CONFIG_FIELDS) :]:
                named = ", ".join(s for s in strange if isinstance(s, str)) or "a fourth positional argument"
                raise self.unknown(f"its configs set {named}, which a variant cannot state and would lose")

    def _check_constants(self, configs: Sequence[KernelConfig]) -> None:
        own = [set(names) for names in map(_constant_names, self._config_calls()) if names is not None]
        known = arguments(self.function)
        for config in configs:
            if strangers := [n for n in config.constants if n not in known and not any(n in names for names in own)]:
                raise self._no_argument(f"config {config}: ", strangers)
            always = set.intersection(*own) if own else set()
            if missing := sorted(always & set(known) - set(config.constants)):
                raise KeyUnknownError(
                    f"config {config} must set {', '.join(missing)} too, as the configs of {self.function.name!r} do"
                )

    def _config_calls(self) -> list[ast.Call]:
        # A list kept under a name, or made by a function of the file, is looked up there.
        places: list[ast.AST] = [self.configs]
        named = self.configs.func if isinstance(self.configs, ast.Call) else self.configs
        if isinstance(named, ast.Name):
            for statement in self.source.tree.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                if any(isinstance(t, ast.Name) and t.id == named.id for t in targets):
                    places.append(statement)
                if isinstance(statement, Function) and statement.name == named.id:
                    places.append(statement)
        nodes = [node for place in places for node in ast.walk(place)]
        return [node for node in nodes if isinstance(node, ast.Call) and self._is_config(node.func)]

    def _is_config(self, callee: ast.expr) -> bool:
        return _is_triton(self.source, callee, "Config")

    def _config_name(self) -> str:
        if calls := self._config_calls():
            return self.source.segment(calls[0].func)
        if isinstance(self.call.func, ast.Attribute):
            return f"{self.source.segment(self.call.func.value)}.Config"
        raise self.unknown("it does not show under which name the file has triton.Config")

    def _config(self, element: ast.expr) -> KernelConfig:
        if not isinstance(element, ast.Call) or not self._is_config(element.func):
            raise self.unknown(f"the config {self.source.segment(element)!r} is not a call of triton.Config")
        try:
            fields = {name: ast.literal_eval(value) for name, value in _config_fields(element).items()}
            config = KernelConfig(
                dict(fields.pop("kwargs")),
                fields.pop("num_warps", _DEFAULT_WARPS),
                fields.pop("num_stages", _DEFAULT_STAGES),
            )
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self.unknown(f"the config {self.source.segment(element)!r} is not written out") from error
        if fields:
            raise self.unknown(f"the config {self.source.segment(element)!r} sets {', '.join(fields)}")
        held = (*config.constants, *config.constants.values(), config.num_warps, config.num_stages)
        if not all(map(_is_plain, held)):
            raise self.unknown(f"the config {self.source.segment(element)!r} holds more than numbers and names")
        return config


def find_autotune(source: KernelSource, kernel: str) -> Autotune:
    """The autotune decorator of a kernel; each fault has its own error."""
    function = find_kernel(source, kernel)
    found = [d for d in function.decorator_list if _is_triton(source, _callee(d), "autotune")]
    if not found:
        hint = _hint(source, function)
        raise DecoratorUnknownError(f"line {function.lineno}: {kernel!r} has no triton.autotune decorator; {hint}")
    if len(found) > 1:
        raise DecoratorUnknownError(f"line {function.lineno}: {kernel!r} has {len(found)} autotune decorators")
    call = found[0]
    if not isinstance(call, ast.Call):
        raise DecoratorUnknownError(f"line {call.lineno}: autotune of {kernel!r} is not called")
    if any(isinstance(arg, ast.Starred) for arg in call.args):
        raise DecoratorUnknownError(f"line {call.lineno}: autotune of {kernel!r} takes starred arguments")
    configs, key = (_argument(call, name, place) for place, name in enumerate(_PARAMETERS))
    if configs is None:
        raise DecoratorUnknownError(f"line {call.lineno}: autotune of {kernel!r} is given no configs by name or place")
    return Autotune(source, function, call, configs, key)


def read_configs(text: str, kernel: str) -> list[KernelConfig]:
    """The configs that a kernel file writes out in its autotune decorator."""
    return find_autotune(parse_source(text), kernel).read_configs()


def read_key(text: str, kernel: str) -> tuple[str, ...]:
    """The autotune key that a kernel file writes out; empty when it gives none."""
    return find_autotune(parse_source(text), kernel).read_key()


def _callee(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _is_triton(source: KernelSource, callee: ast.expr, last: str) -> bool:
    return any(name.split(".")[0] == "triton" and name.split(".")[-1] == last for name in source.full_names(callee))


def _argument(call: ast.Call, name: str, place: int) -> ast.expr | None:
    by_name = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    return by_name or (call.args[place] if place < len(call.args) else None)


def _parameter(arg: libcst.Arg, place: int) -> str:
    if arg.keyword:
        return arg.keyword.value
    return _PARAMETERS[place] if place < len(_PARAMETERS) and not arg.star else ""


def _config_fields(call: ast.Call) -> dict[str, ast.expr]:
    fields = dict(zip(_CONFIG_FIELDS, call.args, strict=False))
    return {**fields, **{keyword.arg or "**": keyword.value for keyword in call.keywords}}


def _is_plain(value: object) -> bool:
    # Python writes no decimal of an integer of thousands of digits; Triton takes none beyond 64 bits.
    return isinstance(value, str | float) or (isinstance(value, int) and -(2**63) <= value < 2**64)


def _constant_names(call: ast.Call) -> list[str] | None:
    constants = _config_fields(call).get("kwargs")
    if not isinstance(constants, ast.Dict):
        return None
    return [key.value for key in constants.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]


def _config_arguments(config: KernelConfig) -> str:
    constants = ", ".join(f"{json.dumps(name)}: {value!r}" for name, value in config.constants.items())
    return f"{{{constants}}}, num_warps={config.num_warps}, num_stages={config.num_stages}"


def _form(node: ast.expr) -> str:
    names = {ast.ListComp: "a comprehension", ast.Call: "made by a call", ast.Name: "kept under a name"}
    return names.get(type(node), f"of the form {type(node).__name__}")


def _hint(source: KernelSource, function: Function) -> str:
    number = min([function.lineno, *(d.lineno for d in function.decorator_list)]) - 1
    while number > 0 and source.line(number).lstrip().startswith("#"):
        if "autotune(" in source.line(number):
            return f"the one on line {number} is commented out"
        number -= 1
    shown = ", ".join(source.segment(_callee(d)) for d in function.decorator_list)
    return f"its decorators: {shown or 'none'}"

"""The steps that make a file coarser before a mechanism sees it, each a declared function of one record.

A step looks at one record alone, so a changed record changes at most one prepared record: what a mechanism promises
about the prepared file it promises about the file as it was (``pull_back``, factor 1). A step that is computed from the
whole file (a quantile, "codes with fewer than 5") is not such a function and is refused.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import polars as pl
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator
from pydantic_core import PydanticCustomError

from stirred.data.codebook import Codebook, Variable, shown
from stirred.data.hrc import CodeTree, read_hrc
from stirred.data.missing import MISSING_CODE, means_missing
from stirred.data.problems import bad_plan, listed

LEARNED: Final = "learned"  # the type of the error about a step that is computed from the file
_ONE_FOR_ALL: Final = "one record could change what becomes of others"
_CAP: Final = (
    f"a cap at a quantile is computed from the file, and {_ONE_FOR_ALL}: at quantile q of n records the loss grows by "
    "the factor n - ceil(q n) + 1",
    "declare the value, such as at = 90, from an earlier census or by policy",
)
_RARE: Final = (
    f"which codes are rare is computed from the file, and {_ONE_FOR_ALL}: with fewer than k records the loss grows by "
    "the factor k",
    "declare the map, such as map = { other = ... }, from an earlier census or by policy",
)
_ROWS: Final = (
    "dropping records changes how many there are, and files of different size are not compared",
    'keep them with a code of their own, such as step = "recode"; or drop columns',
)
# Keys by which people ask for steps that are computed from the file, and what to declare instead.
_COMPUTED: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("quantile", "percentile", "top_percent"), _CAP),
    **dict.fromkeys(("fewer_than", "min_count", "rare", "k"), _RARE),
    **dict.fromkeys(("rows", "where", "records"), _ROWS),
}
_MOST_SHOWN: Final = 8
_MOST_CODES: Final = 1_000


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Columns = Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=str | list[str]), Field(min_length=1)]


class Step(BaseModel):
    """One step of ``[[prepare]]``: a function of one record, fixed beforehand."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    numeric: ClassVar[bool] = False
    said: ClassVar[str] = ""
    no_answer: ClassVar[str] = "the step has no answer for"
    answer: ClassVar[str] = "declare one for every value that may occur, or say what becomes of all others"

    @model_validator(mode="before")
    @classmethod
    def _declared(cls, given: Any) -> Any:
        for key, value in given.items() if isinstance(given, dict) else ():
            by_share = key == "at" and isinstance(value, str) and ("%" in value or value.startswith("p"))
            if key in _COMPUTED or by_share:
                what, remedy = _COMPUTED.get(key, _CAP)
                raise PydanticCustomError(LEARNED, "{what}", {"what": what, "remedy": remedy})
        return given

    @property
    def called(self) -> str:
        """Return what the step is called in plans."""
        return str(getattr(self, "step", ""))

    @property
    def names(self) -> Sequence[str]:
        """Return the columns it is about."""
        own: list[str] = getattr(self, "column", [])
        return own

    @property
    def words(self) -> str:
        """Say what becomes of a column, as it stands in the specification."""
        return self.said.format(**self.__dict__)

    @abstractmethod
    def new(self, old: pl.Expr, kind: pl.DataType) -> pl.Expr:
        """Return the new value of a column of this type."""

    def unfit(self, column: pl.Series) -> pl.Series | None:
        """Say of each value whether the step has no answer for it; None where it has one for all."""
        return None

    def declares(self, variable: Variable) -> Variable | None:
        """Return what may be in the column afterwards, by what was declared before; None if it is gone."""
        return variable

    def with_files(self, codebook: Codebook | None, folder: Path) -> Step:
        """Return the step with the hierarchy that it names."""
        return self


class Recode(Step):
    """Replace codes by coarser ones: by a map, or by a level of a hierarchy of codes."""

    step: Literal["recode"] = Field(description="Make codes coarser.")
    column: Columns = Field(description="The column, or several with the same codes.")
    map: dict[str, str | int] | None = Field(default=None, description='Every code and its new one: { 1 = "owned" }.')
    other: str | int | None = Field(default=None, description="The new code of all codes that the map does not list.")
    keep: bool = Field(default=False, description="Instead: codes that the map does not list stay as they are.")
    hierarchy: str | None = Field(default=None, description="Instead: a hierarchy of codes in the codebook, by name.")
    hrc: str | None = Field(default=None, description="Instead: a tau-ARGUS file; relative to the plan.")
    level: int | None = Field(default=None, ge=1, description="Of a hierarchy: which level, 1 for the coarsest.")

    @model_validator(mode="after")
    def _one_source(self) -> Recode:
        sources = [key for key in ("map", "hierarchy", "hrc") if getattr(self, key) is not None]
        if len(sources) != 1 or (sources == ["map"]) == (self.level is not None):
            what = "recoding needs either a map, or hierarchy or hrc together with level"
            raise PydanticCustomError(LEARNED, "{what}", {"what": what, "remedy": "write one of them"})
        if self.keep and (self.map is None or self.other is not None):
            what = "keep goes with a map, and says that its other codes stay"
            raise PydanticCustomError(LEARNED, "{what}", {"what": what, "remedy": "leave keep or other out"})
        return self

    @property
    def words(self) -> str:
        """Say to what the codes were changed."""
        if self.map is None:
            return f"recoded by level {self.level} of {self.hierarchy or self.hrc}"
        new = [*dict.fromkeys(map(str, (*self.map.values(), *(() if self.other is None else (self.other,)))))]
        if self.keep:
            return f"with {shown([*self.map])} recoded to {shown(new)}"
        return f"recoded to {shown(new)}" if len(new) <= _MOST_SHOWN else f"recoded to {len(new)} declared codes"

    def with_files(self, codebook: Codebook | None, folder: Path) -> Step:
        """Return the map of every leaf to the code above it at the level."""
        if self.map is not None:
            return self
        if self.hrc is not None:
            tree = read_hrc(folder / self.hrc)
        else:
            trees = {each.name: each.tree for each in (codebook.trees if codebook else ())}
            if self.hierarchy not in trees:
                remedy = f"the codebook has {listed([*trees])}" if trees else "name a codebook with it under [data]"
                raise bad_plan(f"there is no hierarchy of codes '{self.hierarchy}'", where="hierarchy", remedy=remedy)
            tree = trees[self.hierarchy or ""]
        assert self.level is not None
        if self.level > len(tree.levels):
            what = f"the hierarchy has {len(tree.levels)} levels"
            raise bad_plan(what, where="level", remedy="write one of them, 1 for the coarsest")
        return self.model_copy(update={"map": _at_level(tree, self.level)})

    @property
    def _numbers(self) -> bool:
        values = [*(self.map or {}).values(), *(() if self.other is None else (self.other,))]
        return all(isinstance(value, int) for value in values)

    def new(self, old: pl.Expr, kind: pl.DataType) -> pl.Expr:
        text = {code: str(value) for code, value in (self.map or {}).items()}
        if self.keep:
            return old.cast(pl.String).replace(text)
        default = None if self.other is None else str(self.other)
        found = old.cast(pl.String).replace_strict(text, default=default, return_dtype=pl.String)
        found = pl.when(old.is_not_null()).then(found)
        return found.cast(pl.Int64) if self._numbers else found

    def unfit(self, column: pl.Series) -> pl.Series | None:
        if self.other is not None or self.keep:
            return None
        return ~column.cast(pl.String).is_in([*(self.map or {})]) & column.is_not_null()

    def declares(self, variable: Variable) -> Variable:
        if self.keep and variable.type != "code":
            return replace(variable, type="text", min=None, max=None)
        kept = [code for code in variable.codes if code not in (self.map or {})] if self.keep else []
        new = [*kept, *(self.map or {}).values(), *(() if self.other is None else (self.other,))]
        codes = {str(code): str(code) for code in new}
        return replace(variable, type="code", codes=codes, min=None, max=None)


def _at_level(tree: CodeTree, level: int) -> dict[str, str | int]:
    depth = {code: number for number, codes in enumerate(tree.levels, start=1) for code in codes}
    found: dict[str, str | int] = {}
    for leaf in tree.leaves:
        code = leaf
        while depth[code] > level:
            code = tree.parents[code] or code
        found[leaf] = code
    return found


class _Numeric(Step):
    numeric: ClassVar[bool] = True

    column: Columns = Field(description="The column, or several.")


class Cap(_Numeric):
    """Replace every number above a declared one, or below it, by it."""

    step: Literal["top-code", "bottom-code"] = Field(description="Cap numbers from above, or from below.")
    at: int = Field(description="The largest, or smallest, number that is left.")

    said: ClassVar[str] = "{step}d at {at}"

    def new(self, old: pl.Expr, kind: pl.DataType) -> pl.Expr:
        number = old.str.strip_chars().cast(pl.Float64) if kind == pl.String else old
        reached = number >= self.at if self.step == "top-code" else number <= self.at
        return pl.when(reached).then(pl.lit(self.at).cast(kind)).otherwise(old)

    def declares(self, variable: Variable) -> Variable:
        if variable.type != "integer":
            return variable
        low, high = variable.min, variable.max
        if self.step == "top-code":
            return replace(variable, max=self.at if high is None else min(high, self.at))
        return replace(variable, min=self.at if low is None else max(low, self.at))


class Round(_Numeric):
    """Round numbers to multiples of a declared one, halves up."""

    step: Literal["round"] = Field(description="Round numbers.")
    to: int = Field(ge=2, description="The number whose multiples are left.")

    said: ClassVar[str] = "rounded to {to}"

    def rounded(self, value: int) -> int:
        """Return one number, rounded."""
        return (2 * value + self.to) // (2 * self.to) * self.to

    def new(self, old: pl.Expr, kind: pl.DataType) -> pl.Expr:
        whole = (2 * old + self.to) // (2 * self.to) * self.to
        return whole.cast(pl.Int64)

    def declares(self, variable: Variable) -> Variable:
        if variable.min is None or variable.max is None:
            return variable
        low, high = self.rounded(variable.min), self.rounded(variable.max)
        return _coded(variable, [str(value) for value in range(low, high + 1, self.to)], low=low, high=high)


class Band(_Numeric):
    """Replace whole numbers by the band they are in, such as 18-64."""

    step: Literal["band"] = Field(description="Put numbers into bands.")
    width: int | None = Field(default=None, ge=2, description="All bands have this width.")
    start: int = Field(default=0, description="With width: where a band begins.")
    breaks: list[int] | None = Field(default=None, min_length=1, description="Instead: where each band begins.")

    @model_validator(mode="after")
    def _one_way(self) -> Band:
        breaks = self.breaks or []
        if (self.width is None) == (self.breaks is None) or any(a >= b for a, b in pairwise(breaks)):
            what = "bands need either a width, or breaks that rise"
            raise PydanticCustomError(LEARNED, "{what}", {"what": what, "remedy": "write such as breaks = [0, 18, 65]"})
        return self

    @property
    def words(self) -> str:
        """Say which bands."""
        if self.breaks is None:
            return f"in bands of width {self.width} from {self.start}"
        return f"in bands from {', '.join(map(str, self.breaks))}"

    @property
    def _labels(self) -> list[str]:
        breaks = self.breaks or []
        inner = [str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in pairwise(breaks)]
        return [f"under {breaks[0]}", *inner, f"{breaks[-1]}+"]

    def new(self, old: pl.Expr, kind: pl.DataType) -> pl.Expr:
        if self.breaks is not None:
            band = pl.lit(self._labels[0])
            for least, label in zip(self.breaks, self._labels[1:], strict=True):
                band = pl.when(old >= least).then(pl.lit(label)).otherwise(band)
            return pl.when(old.is_not_null()).then(band)
        low = (old - self.start) // self.width * self.width + self.start
        return pl.when(old.is_not_null()).then(pl.format("{}-{}", low, low + (self.width or 0) - 1))

    def unfit(self, column: pl.Series) -> pl.Series | None:
        return None if column.dtype.is_integer() else column != column.floor()

    def declares(self, variable: Variable) -> Variable:
        if self.breaks is not None:
            return _coded(variable, self._labels)
        if variable.min is None or variable.max is None:
            return replace(variable, type="text", min=None, max=None)
        width, start = self.width or 1, self.start
        first = (variable.min - start) // width * width + start
        return _coded(variable, [f"{low}-{low + width - 1}" for low in range(first, variable.max + 1, width)])


class Drop(Step):
    """Leave columns out."""

    step: Literal["drop"] = Field(description="Leave columns out.")
    column: Columns = Field(description="The column, or several.")

    said: ClassVar[str] = "dropped"

    def new(self, old: pl.Expr, kind: pl.DataType) -> pl.Expr:
        return pl.lit(None, kind)  # nothing of the column is left

    def declares(self, variable: Variable) -> None:
        return


class Missing(Step):
    """Make missing values, and texts that mean one, a code of their own."""

    step: Literal["missing"] = Field(description="Make missing values a code.")
    column: Columns = Field(description="The column, or several.")
    values: list[str] = Field(default=[], description='Texts that mean a missing value, such as ["NA", ".", ""].')
    keep: list[str] = Field(default=[], description='Texts that look like one and are codes, such as "NA", Namibia.')
    code: str = Field(default=MISSING_CODE, min_length=1, description="The code that they get.")

    said: ClassVar[str] = "with missing values as the code {code}"
    no_answer: ClassVar[str] = "a missing value may be meant, or its code is taken, by"
    answer: ClassVar[str] = (
        'if it is, say so: values = ["NA", "."]; if they are codes and no missing values: keep = ["NA"], and another '
        "code"
    )

    def new(self, old: pl.Expr, kind: pl.DataType) -> pl.Expr:
        text = (old.fill_nan(None) if kind.is_float() else old).cast(pl.String)
        return pl.when(text.str.strip_chars().is_in(self.values)).then(None).otherwise(text).fill_null(self.code)

    def unfit(self, column: pl.Series) -> pl.Series | None:
        text = column.cast(pl.String)
        asked = means_missing(text) & ~text.str.strip_chars().is_in([*self.values, *self.keep])
        return (text == self.code) & ~text.is_in(self.values) | asked

    def declares(self, variable: Variable) -> Variable:
        if variable.type != "code":
            return replace(variable, type="text", min=None, max=None, missing=False)
        codes = {code: label for code, label in variable.codes.items() if code not in self.values}
        return replace(variable, codes={**codes, self.code: "missing"}, missing=False)


class Split(Step):
    """Make households and persons of a flat file of persons with a household id."""

    step: Literal["split"] = Field(description="Make households of a file of persons.")
    hid: str = Field(description="The column that says which household a person is in.")
    households: Columns = Field(description="The columns that belong to the household; all others to its persons.")

    @property
    def names(self) -> Sequence[str]:
        """Return the id and the columns of households."""
        return [self.hid, *self.households]

    @property
    def words(self) -> str:
        """Say what makes a household."""
        return f"grouped into households with {', '.join(self.households)}"

    def new(self, old: pl.Expr, kind: pl.DataType) -> pl.Expr:
        return old  # values stay, and records are grouped


AnyStep = Annotated[Recode | Cap | Band | Round | Drop | Missing | Split, Field(discriminator="step")]


def words_of(steps: Sequence[Step]) -> tuple[tuple[str, str], ...]:
    """Return by column what was done to it, as a specification names it."""
    return tuple((name, step.words) for step in steps for name in step.names[: 1 if isinstance(step, Split) else None])


def words_in(kept: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return the same for steps as a manifest keeps them."""
    return words_of(TypeAdapter(list[AnyStep]).validate_python(list(kept)))


def _coded(variable: Variable, codes: Sequence[str], *, low: int | None = None, high: int | None = None) -> Variable:
    if len(codes) > _MOST_CODES:
        return variable if low is not None else replace(variable, type="text", min=None, max=None)
    return replace(variable, type="code", codes={code: code for code in codes}, min=None, max=None)

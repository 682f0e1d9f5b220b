"""The steps that make a file coarser before a mechanism sees it, each a declared function of one record.

A step looks at one record alone, so a changed record changes at most one prepared record: what a mechanism promises
about the prepared file it promises about the file as it was (``pull_back``, factor 1). A step that is computed from the
whole file (a quantile, "codes with fewer than 5") is not such a function and is refused.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import count, pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import polars as pl
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from stirred.data.codebook import Codebook, CodeTree, Variable, shown
from stirred.data.codebook_file import read_hrc
from stirred.data.missing import MISSING_CODE, means_missing
from stirred.data.problems import bad_plan, listed
from stirred.spec.problems import as_given

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
    **dict.fromkeys(("quantile", "percentile", "top_percent", "q"), _CAP),
    **dict.fromkeys(("fewer_than", "min_count", "rare", "k"), _RARE),
    **dict.fromkeys(("rows", "where", "records"), _ROWS),
}
_MOST_SHOWN: Final = 8
_MOST_CODES: Final = 1_000
_MOST_POINTS: Final = 100_000


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
    computed: ClassVar[Mapping[str, tuple[str, str]]] = _COMPUTED

    @model_validator(mode="before")
    @classmethod
    def _declared(cls, given: Any) -> Any:
        for key, value in given.items() if isinstance(given, dict) else ():
            by_share = key == "at" and isinstance(value, str) and ("%" in value or value.startswith("p"))
            if key in cls.computed or by_share:
                what, remedy = cls.computed.get(key, _CAP)
                raise _wrong(what, remedy)
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
            raise _wrong("recoding needs either a map, or hierarchy or hrc together with level", "write one of them")
        if self.keep and (self.map is None or self.other is not None):
            raise _wrong("keep goes with a map, and says that its other codes stay", "leave keep or other out")
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
        variable = closed(variable)
        if self.keep and variable.type != "code":
            return _plain(variable, type="text")
        kept = [code for code in variable.codes if code not in (self.map or {})] if self.keep else []
        new = [*kept, *(self.map or {}).values(), *(() if self.other is None else (self.other,))]
        codes = {str(code): str(code) for code in new}
        return _plain(variable, type="code", codes=codes)


def _at_level(tree: CodeTree, level: int) -> dict[str, str | int]:
    depth = {code: number for number, codes in enumerate(tree.levels, start=1) for code in codes}
    found: dict[str, str | int] = {}
    for leaf in tree.leaves:
        code = leaf
        while depth[code] > level:
            code = tree.parents[code] or code
        found[leaf] = code
    return found


# A leading zero tells a code from a number; a point may come first (SAS), and an exponent last (R).
NUMBER: Final = (
    r"^\s*(?P<number>[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?)(?P<end>\+| or less)?\s*$"
)
_ABOVE, _BELOW = "+", " or less"  # how a capped number is written: 85+, 18 or less
_LARGEST: Final = 10**18


def _decimal(value: Any) -> Any:
    """Return an exact number; a float of Python by its shortest decimal."""
    text = "" if isinstance(value, bool) else str(value)
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite() or abs(found) >= _LARGEST or found != round(found, 18):
        days = "; days are put into bands: step = 'band', breaks = [1950-01-01, 1980-01-01]"
        more = days if isinstance(value, date) else ""
        raise _wrong(f"{as_given(value)} is not a number", f"write one such as 85 or 0.5{more}")
    return found


def _date(value: Any) -> Any:
    """Return a day."""
    found = day_of(value) if isinstance(value, str) else value
    if not isinstance(found, date) or isinstance(found, datetime):
        raise _wrong(f"{str(value)!r} is not a day", "write one such as 2020-12-31")
    return found


def _wrong(what: str, remedy: str) -> PydanticCustomError:
    return PydanticCustomError(LEARNED, "{what}", {"what": what, "remedy": remedy})


def _written(value: Decimal | date | None) -> int | str | None:
    if not isinstance(value, Decimal):
        return None if value is None else str(value)
    return int(value) if value == int(value) else _text(value)


Exact = Annotated[
    Decimal,
    BeforeValidator(_decimal, json_schema_input_type=int | float | str),
    PlainSerializer(_written, return_type=int | str),
]
Above0 = Annotated[Exact, Field(gt=0)]
Day = Annotated[date, BeforeValidator(_date), PlainSerializer(_written, return_type=str)]
Break = Annotated[
    Decimal | date,
    BeforeValidator(
        lambda value: (
            _date(value) if isinstance(value, date) or (isinstance(value, str) and day_of(value)) else _decimal(value)
        ),
        json_schema_input_type=int | float | str,
    ),
    PlainSerializer(_written, return_type=int | str),
]


def _text(value: Fraction | Decimal | int) -> str:
    """Write a number that has finitely many decimals.

    >>> _text(Decimal("0.50")), _text(Fraction(-3, 4)), _text(1000)
    ('0.5', '-0.75', '1000')
    """
    number = Fraction(value)
    places = next(places for places in count() if 10**places % number.denominator == 0)
    digits = f"{abs(number.numerator) * 10**places // number.denominator:0{places + 1}d}"
    whole, decimals = (digits[:-places], digits[-places:]) if places else (digits, "")
    return f"{'-' if number < 0 else ''}{whole}{'.' if decimals else ''}{decimals}"


def _number(text: str) -> tuple[Fraction, str] | None:
    """Return a number and whether it stands for all above or below; None for any other text.

    >>> _number("-5809.400000000001")[0] * 10**12, _number("85+"), _number("012")
    (Fraction(-5809400000000001, 1), (Fraction(85, 1), '+'), None)
    """
    found = re.match(NUMBER, text)
    value = Fraction(found["number"]) if found else Fraction(_LARGEST)
    return None if found is None or abs(value) >= _LARGEST else (value, found["end"] or "")


def day_of(text: str, pattern: str | None = None) -> date | None:
    """Return a day, with or without a time after it; None for any other text.

    >>> day_of("2020-12-31 11:59:00"), day_of("31.12.2020", "%d.%m.%Y"), day_of("2020-13-01")
    (datetime.date(2020, 12, 31), datetime.date(2020, 12, 31), None)
    """
    try:
        text = text.strip()
        return (datetime.fromisoformat(text) if pattern is None else datetime.strptime(text, pattern)).date()
    except ValueError:
        return None


class _ByValue(Step):
    """A step that gives each value, written as text, its new one."""

    column: Columns = Field(description="The column, or several.")

    @abstractmethod
    def of(self, text: str) -> str | None:
        """Return what becomes of a value; None if the step has no answer for it."""

    def kind(self, old: pl.DataType) -> pl.DataType:
        """Return the type of the column afterwards, by what it was and what the plan says."""
        return pl.String()

    def new(self, old: pl.Expr, kind: pl.DataType) -> pl.Expr:
        after = self.kind(kind)
        return old.map_batches(lambda column: self._answers(column).cast(after), return_dtype=after)

    def unfit(self, column: pl.Series) -> pl.Series | None:
        return self._answers(column).is_null() & _texts(column).is_not_null()

    def _answers(self, column: pl.Series) -> pl.Series:
        texts = _texts(column)
        values = texts.unique().drop_nulls()
        answers = pl.Series(values=[self.of(text) for text in values], dtype=pl.String)
        return texts.replace_strict(values, answers, default=None, return_dtype=pl.String).alias(column.name)

    def _coded(self, variable: Variable, texts: Iterable[str]) -> Variable:
        """Return a variable whose codes are the answers for these texts; one of text if they are too many."""
        codes = dict.fromkeys(answer for text in texts if (answer := self.of(text)) is not None)
        if len(codes) > _MOST_CODES:
            return _plain(variable, type="text")
        return _plain(variable, type="code", codes={code: code for code in codes})

    def declares(self, variable: Variable) -> Variable | None:
        variable = closed(variable)
        return self._coded(variable, variable.codes) if variable.type == "code" else _plain(variable, type="text")


def _texts(column: pl.Series) -> pl.Series:
    return (column.fill_nan(None) if column.dtype.is_float() else column).cast(pl.String)


class _Capped(Variable):
    """A whole number between two caps, while further steps make it coarser: 85 stands for all above."""

    above: bool = False
    below: bool = False

    def texts(self, points: Iterable[int]) -> Iterator[str]:
        """Yield the ends and the points between them, as they are written."""
        assert self.min is not None
        assert self.max is not None
        for value in sorted({self.min, self.max, *(each for each in points if self.min < each < self.max)}):
            above, below = self.above and value == self.max, self.below and value == self.min
            yield f"{value}{_ABOVE if above else _BELOW if below else ''}"


def _capped(variable: Variable, **changes: Any) -> _Capped:
    return _Capped(**{**dict(variable), **changes})


def _plain(variable: Variable, **changes: Any) -> Variable:
    own = {name: getattr(variable, name) for name in Variable.model_fields}
    return Variable(**{**own, "codes": {}, "min": None, "max": None, **changes})


def closed(variable: Variable) -> Variable:
    """Return what is declared of a column after the last step with numbers: the codes, if they can be listed."""
    if not isinstance(variable, _Capped):
        return variable
    if not (variable.above or variable.below):
        return _plain(variable, min=variable.min, max=variable.max)
    if variable.min is None or variable.max is None or variable.max - variable.min >= _MOST_CODES:
        return _plain(variable, type="text")
    codes = variable.texts(range(variable.min, variable.max))
    return _plain(variable, type="code", codes={code: code for code in codes})


class _Numeric(_ByValue):
    numeric: ClassVar[bool] = True
    answer: ClassVar[str] = (
        "a capped number such as 85+ must be the first, and 18 or less the last, of what the step puts together: cap "
        "at another number, or make the bands end there"
    )

    def points(self, low: int, high: int) -> Iterable[int] | None:
        """Return whole numbers that have all answers between two of them; None if there are too many."""
        return None if high - low > _MOST_POINTS else range(low, high)

    def declares(self, variable: Variable) -> Variable | None:
        if variable.type == "integer" and variable.min is not None and variable.max is not None:
            points = self.points(variable.min, variable.max)
            if points is not None:
                return self._coded(variable, _capped(variable).texts(points))
            return _plain(variable, type="text")
        return super().declares(variable)


class Cap(_Numeric):
    """Replace every number above a declared one, or below it, by a code such as 85+."""

    step: Literal["top-code", "bottom-code"] = Field(description="Cap numbers from above, or from below.")
    at: Exact = Field(description="The largest, or smallest, number that is left.")
    label: bool = Field(
        default=True,
        description='Whether a capped value is written "85+" or "18 or less"; false leaves the number, to be added up.',
    )

    @property
    def words(self) -> str:
        """Say where the cap is."""
        return f"{self.step}d at {_text(self.at)}{'' if self.label else ', as a number'}"

    @model_serializer(mode="wrap")
    def _as_before(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave the default out: ledgers compare steps with those of earlier releases."""
        found: dict[str, Any] = plain(self)
        return {key: value for key, value in found.items() if key != "label" or not value}

    def of(self, text: str) -> str | None:
        found = _number(text)
        if found is None or (found[1] and not self.label):
            return None
        (value, end), top = found, self.step == "top-code"
        reached = value >= self.at if top else value <= self.at
        if end == (_BELOW if top else _ABOVE) and reached and value != self.at:
            return None
        if not reached or end == (_BELOW if top else _ABOVE):
            return f"{_text(value)}{end}"
        return f"{_text(self.at)}{'' if not self.label else _ABOVE if top else _BELOW}"

    def kind(self, old: pl.DataType) -> pl.DataType:
        if self.label or old == pl.String:
            return pl.String()
        return old if old.is_float() or self.at == int(self.at) else pl.Float64()

    def declares(self, variable: Variable) -> Variable | None:
        if variable.type != "integer" or self.at != int(self.at):
            return super().declares(variable)
        low, high, at = variable.min, variable.max, int(self.at)
        if self.step == "top-code":
            reached = high is None or high >= at
            return _capped(variable, max=at if reached else high, **({"above": True} if self.label and reached else {}))
        reached = low is None or low <= at
        return _capped(variable, min=at if reached else low, **({"below": True} if self.label and reached else {}))


class Round(_Numeric):
    """Round numbers to multiples of a declared one, halves up."""

    step: Literal["round"] = Field(description="Round numbers.")
    to: Above0 = Field(description="The number whose multiples are left, such as 1000, 1 or 0.5.")

    @property
    def words(self) -> str:
        """Say to what."""
        return f"rounded to {_text(self.to)}"

    def of(self, text: str) -> str | None:
        found = _number(text)
        unit = Fraction(self.to)
        if found is None or (found[1] and found[0] % unit):
            return None
        return f"{_text((found[0] / unit + Fraction(1, 2)).__floor__() * unit)}{found[1]}"

    def new(self, old: pl.Expr, kind: pl.DataType) -> pl.Expr:
        return old if kind.is_integer() and self.to == 1 else super().new(old, kind)

    def kind(self, old: pl.DataType) -> pl.DataType:
        if old == pl.String:
            return old
        return pl.Int64() if self.to == int(self.to) else pl.Float64()

    def points(self, low: int, high: int) -> Iterable[int] | None:
        unit = int(self.to)
        return None if unit != self.to or (high - low) // unit > _MOST_CODES else range(low - low % unit, high, unit)

    def declares(self, variable: Variable) -> Variable | None:
        if variable.type == "integer" and self.to == int(self.to) and not isinstance(variable, _Capped):
            low, high = (None if end is None else int(self.of(str(end)) or 0) for end in (variable.min, variable.max))
            if low is None or high is None or (high - low) // int(self.to) > _MOST_CODES:
                return variable.model_copy(update={"min": low, "max": high})
        return super().declares(variable)


_DAYS: Final = (
    'days are read as 2020-12-31, or as format = "%d.%m.%Y" says; texts that mean a missing value are declared: '
    'missing = ["NA"] under [data]'
)


class Band(_Numeric):
    """Replace numbers or dates by the band they are in, such as 18-64."""

    step: Literal["band"] = Field(description="Put numbers or dates into bands.")
    width: Above0 | None = Field(default=None, description="All bands have this width.")
    start: Exact = Field(default=Decimal(0), description="With width: where a band begins.")
    breaks: list[Break] | None = Field(
        default=None, min_length=1, description="Instead: where each band begins, numbers or dates."
    )

    @model_validator(mode="after")
    def _one_way(self) -> Band:
        breaks: list[Any] = self.breaks or []
        if self.width is not None and self.breaks is not None:
            raise _wrong("bands have either a width or breaks", "give width or breaks, not both")
        mixed = len({type(each) for each in breaks}) > 1
        if (self.width is None) == (self.breaks is None) or mixed or any(a >= b for a, b in pairwise(breaks)):
            raise _wrong("bands need either a width, or breaks that rise", "write such as breaks = [0, 18, 65]")
        return self

    @property
    def numeric(self) -> bool:  # type: ignore[override]
        """Say whether it is for numbers, and not for dates."""
        return self.breaks is None or isinstance(self.breaks[0], Decimal)

    @property
    def answer(self) -> str:  # type: ignore[override]
        """Say how days are written, where the bands are of days."""
        return _Numeric.answer if self.numeric else _DAYS

    @property
    def words(self) -> str:
        """Say which bands."""
        if self.breaks is None:
            return f"in bands of width {_text(self.width or 0)} from {_text(self.start)}"
        return f"in bands from {', '.join(str(_written(each)) for each in self.breaks)}"

    @property
    def _whole(self) -> bool:
        """Say whether all bands begin at whole numbers; a decimal then counts by its whole part."""
        numbers = [self.width, self.start] if self.breaks is None else self.breaks
        return all(isinstance(each, Decimal) and each == int(each) for each in numbers)

    def _label(self, low: Any, next_low: Any) -> str:
        """Write a band; ``None`` is no end."""
        if isinstance(low or next_low, date):
            if low is None:
                return f"before {next_low}"
            last = None if next_low is None else next_low - timedelta(days=1)
            return f"from {low}" if last is None else str(low) if last == low else f"{low} to {last}"
        if low is None or next_low is None:
            return f"under {_text(next_low)}" if low is None else f"{_text(low)}{_ABOVE}"
        if not self._whole:
            return f"{_text(low)} to under {_text(next_low)}"
        last = next_low - 1
        return _text(low) if low == last else f"{_text(low)}{'-' if low >= 0 else ' to '}{_text(last)}"

    def _ends(self, value: Any) -> tuple[Any, Any]:
        """Return where the band of a value begins, and where the next one does."""
        if self.breaks is None:
            width, start = Fraction(self.width or 1), Fraction(self.start)
            low = (value - start) // width * width + start
            return low, low + width
        breaks: list[Any] = [
            None,
            *(Fraction(each) if isinstance(each, Decimal) else each for each in self.breaks),
            None,
        ]
        at = bisect_right(breaks[1:-1], value)
        return breaks[at], breaks[at + 1]

    def of(self, text: str) -> str | None:
        if not self.numeric:
            return None if (day := day_of(text)) is None else self._label(*self._ends(day))
        if (found := _number(text)) is None:
            return None
        (value, end), (low, next_low) = found, self._ends(found[0])
        if end == _ABOVE:
            return self._label(low, None) if low == value or (next_low is None and low is not None) else None
        if end == _BELOW:
            last = self._whole and next_low == value + 1
            return self._label(None, next_low) if last or (low is None and next_low is not None) else None
        return self._label(low, next_low)

    def points(self, low: int, high: int) -> Iterable[int] | None:
        if self.breaks is not None:
            return [int(each) + more for each in self.breaks if isinstance(each, Decimal) for more in (-1, 0, 1)]
        if not self._whole:
            return super().points(low, high)
        width = int(self.width or 1)
        return (
            None if (high - low) // width > _MOST_CODES else range(low - (low - int(self.start)) % width, high, width)
        )

    def declares(self, variable: Variable) -> Variable | None:
        known = variable.type == "code" or (variable.min is not None and variable.max is not None)
        if self.breaks is None or (known and self.numeric):
            return super().declares(variable)
        labels = [self._label(*ends) for ends in pairwise([None, *self.breaks, None])]
        return _plain(variable, type="code", codes={label: label for label in labels})


# What a format of days may hold; times are read and left out.
_OF_DAYS: Final = {
    "d": "day", "m": "month", "Y": "year", "y": "year of two digits", "b": "short name of the month",
    "B": "name of the month", "j": "day of the year", "a": "short name of the weekday", "A": "name of the weekday",
    "H": "hour", "I": "hour of twelve", "p": "am or pm", "M": "minute", "S": "second", "f": "fraction of a second",
    "z": "time zone", "%": "percent sign",
}  # fmt: skip
_PARTS: Final = {
    **dict.fromkeys("Yy", ("year",)), **dict.fromkeys("mbB", ("month",)), "d": ("day",), "j": ("month", "day"),
}  # fmt: skip


class Dates(_ByValue):
    """Replace days by their month, quarter or year, or by the age that somebody born then has on a declared day."""

    step: Literal["date"] = Field(description="Make days coarser, or an age of a day of birth.")
    to: Literal["month", "quarter", "year", "age"] = Field(description="What is left: 2020-03, 2020-Q1, 2020, or 34.")
    on: Day | None = Field(default=None, description="With age: the day on which it is counted, in completed years.")
    format: str | None = Field(
        default=None, description='How texts write days, such as "%d.%m.%Y"; by default 2020-12-31.'
    )

    @property
    def no_answer(self) -> str:  # type: ignore[override]
        """Say what is wrong with a value."""
        return "not a day:" if self.on is None else f"not a day, or after on = {self.on}, on which the age is counted:"

    @property
    def answer(self) -> str:  # type: ignore[override]
        """Say how days are written, and for ages that no birth may be later."""
        return _DAYS if self.on is None else f"name a day on which all were born, with on; {_DAYS}"

    @model_validator(mode="after")
    def _one_day(self) -> Dates:
        if (self.to == "age") != (self.on is not None):
            what, remedy = "an age needs the day on which it is counted", 'write such as to = "age", on = 2020-04-01'
            raise _wrong(what, remedy)
        codes = [*re.findall("%(.?)", self.format or "%Y-%m-%d")]
        if bad := [code for code in codes if code not in _OF_DAYS]:
            what = f"the format '{self.format}' has '%{bad[0]}', which cannot be read"
            raise _wrong(what, f"of days these are: {', '.join(f'%{key} {word}' for key, word in _OF_DAYS.items())}")
        needed = {"year": "year", "month": "month", "quarter": "month", "age": "day"}[self.to]
        parts = {part for code in codes for part in _PARTS.get(code, ())}
        if absent := [part for part in ("year", *({needed} - {"year"})) if part not in parts]:
            raise _wrong(f"the format '{self.format}' has no {absent[0]}", "write such as %d.%m.%Y")
        return self

    @property
    def words(self) -> str:
        """Say what is left of the day."""
        return f"replaced by the age on {self.on}" if self.to == "age" else f"replaced by its {self.to}"

    def of(self, text: str) -> str | None:
        # No value is read in two ways: with a format, 2000-01-02 is not taken for the second of January.
        if (day := day_of(text, self.format)) is None:
            return None
        if self.on is not None:
            years = self.on.year - day.year - ((self.on.month, self.on.day) < (day.month, day.day))
            return str(years) if day <= self.on else None
        by = {"month": f"-{day.month:02d}", "quarter": f"-Q{(day.month + 2) // 3}", "year": ""}
        return f"{day.year:04d}{by[self.to]}"

    def _answers(self, column: pl.Series) -> pl.Series:
        # A format says how texts write days; a column of days is read as it is.
        own = self if column.dtype == pl.String else self.model_copy(update={"format": None})
        return _ByValue._answers(own, column)

    def kind(self, old: pl.DataType) -> pl.DataType:
        return pl.Int64() if self.to in ("year", "age") and old != pl.String else pl.String()

    def declares(self, variable: Variable) -> Variable | None:
        return _plain(variable, type="integer", min=0) if self.to == "age" else _plain(variable, type="text")


class First(_ByValue):
    """Keep the first characters of codes, such as 2 of a region of 4; shorter codes stay."""

    step: Literal["first"] = Field(description="Keep the first characters of codes.")
    characters: int = Field(ge=1, description="How many are kept.")

    no_answer: ClassVar[str] = "numbers of different length, whose leading zeros may be lost:"
    answer: ClassVar[str] = "keep the codes as text, with their zeros; or recode them by a map or a hierarchy"
    said: ClassVar[str] = "cut to the first {characters} characters"
    computed: ClassVar[Mapping[str, tuple[str, str]]] = {
        **_COMPUTED,
        "k": ("it keeps characters, and there is no k", "write how many, such as characters = 3"),
    }

    def of(self, text: str) -> str | None:
        return text[: self.characters]

    def unfit(self, column: pl.Series) -> pl.Series | None:
        if not column.dtype.is_numeric():
            return None
        lengths = column.cast(pl.String).str.len_chars()
        return lengths != lengths.max()


class Count(Step):
    """Make a column of households: how many persons each has."""

    step: Literal["count"] = Field(description="Count the persons of each household.")
    column: Columns = Field(max_length=1, description="The new column of households.")

    said: ClassVar[str] = "computed as the number of persons of the household"

    def new(self, old: pl.Expr, kind: pl.DataType) -> pl.Expr:
        return old  # there is no old value

    @property
    def variable(self) -> Variable:
        """Return what is declared of the new column."""
        return Variable(name=self.column[0], file="households", type="integer", min=0)


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
        variable = closed(variable)
        if variable.type != "code":
            return _plain(variable, type="text", missing=False)
        codes = {code: label for code, label in variable.codes.items() if code not in self.values}
        return _plain(variable, codes={**codes, self.code: "missing"}, missing=False)


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


AnyStep = Annotated[
    Recode | Cap | Band | Round | Dates | First | Count | Drop | Missing | Split, Field(discriminator="step")
]


def words_of(steps: Sequence[Step]) -> tuple[tuple[str, str], ...]:
    """Return by column what was done to it, as a specification names it."""
    return tuple((name, step.words) for step in steps for name in step.names[: 1 if isinstance(step, Split) else None])


def words_in(kept: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return the same for steps as a manifest keeps them."""
    return words_of(TypeAdapter(list[AnyStep]).validate_python(list(kept)))

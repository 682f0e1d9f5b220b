"""The sections of plan.toml, each with what its settings mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializationInfo, model_serializer

from stirred.data.codebook import Codebook
from stirred.data.codebook_file import Decimals, Separator
from stirred.data.sources import PLAIN, Dialect
from stirred.data.steps import AnyStep, Split
from stirred.mechanisms.protocol import Names, Rate, Settings
from stirred.mechanisms.registry import DEFAULT, settings_for, usable
from stirred.report.safes import SAFES, SafesSheet

RECORD_FILES: Final = ("households", "file", "counts", "sample")
Stage = Literal["as-given", "raw-responses", "edited-file", "sample", "population", "transmitted-record"]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class DataSection(_Strict):
    """[data]: the confidential files and their identifiers."""

    households: str | None = Field(
        default=None, description="The household file, one row for each household; relative to the plan."
    )
    file: str | None = Field(default=None, description="Instead: one flat file, such as one of persons.")
    counts: str | None = Field(
        default=None,
        description="Instead: a table of counts, with a row for each combination of values.",
    )
    count: str = Field(default="count", description="The column of a table of counts that has the numbers.")
    sample: str | None = Field(default=None, description="Instead: the file of a survey, see [design].")
    record: str | None = Field(
        default=None,
        description="What a row is, the unit of the promise: household, and in other files record.",
    )
    name: str | None = Field(
        default=None,
        description="What the specification calls the dataset; default the ledger's name for it, or the file's.",
    )
    persons: str | None = Field(default=None, description="The file of the persons in the households.")
    codebook: str | None = Field(default=None, description="A codebook to validate against and to take labels from.")
    hid: str | None = Field(
        default=None,
        description="Column that links persons to households; needed with persons, re-issued on release.",
    )
    id: Names = Field(default=[], description="Columns that identify: never released.")
    missing: Names | dict[str, Names] = Field(
        default=[],
        description='Texts that mean a missing value, such as ["NA", "."]: in every column, or a list for each column.',
    )
    decimal: Decimals | None = Field(
        default=None,
        description="Of text files: what begins the decimals of a number; default the codebook's, or a point.",
    )
    separator: Separator | None = Field(
        default=None,
        description="Of text files: what separates fields; default the codebook's, or told from the header.",
    )
    missing_as: Literal["code"] | None = Field(
        default=None,
        description='With "code" a missing match or swap value is a code of its own, published as (missing); otherwise '
        "it is refused.",
    )
    stage: Stage = Field(
        default="as-given", description="At which stage of its life the file is; the promise is about the file there."
    )
    post_imputation: bool | None = Field(
        default=None,
        description="Whether records may hold answers that imputation copied from others; default what the stage says, "
        "or nothing.",
    )

    @property
    def given(self) -> dict[str, str]:
        """Return the main file by the key that names it; exactly one is right."""
        return {key: path for key in RECORD_FILES if (path := getattr(self, key)) is not None}

    def dialect(self, codebook: Codebook | None) -> Dialect:
        """Return how text files are written, by the plan or else by the codebook."""
        declared = PLAIN if codebook is None else codebook.dialect
        return Dialect(self.separator or declared.separator, self.decimal or declared.decimal)

    @property
    def record_type(self) -> str:
        """Return what a row of the main file is."""
        return self.record or ("household" if self.households is not None else "record")


class DesignSection(_Strict):
    """[design]: how a sample was drawn, by the columns that say it; the names of R's survey package."""

    ids: Names = Field(default=[], description="Columns of the clusters, the largest first; none if units were drawn.")
    strata: Names = Field(default=[], description="Columns of the strata.")
    fpc: Names = Field(default=[], description="Columns of population sizes, for the finite population correction.")
    weights: str | None = Field(default=None, description="Column of the sampling weights.")
    nest: bool = Field(default=False, description="Whether cluster numbers are repeated in other strata.")

    @property
    def columns(self) -> list[str]:
        """Return all columns that the design names."""
        return [*self.ids, *self.strata, *self.fpc, *([self.weights] if self.weights else [])]


class MechanismSection(_Strict):
    """[mechanism]: which one, and the settings that its own model declares (``stirred mechanism show NAME``)."""

    name: str = DEFAULT
    settings: Settings

    @classmethod
    def of(cls, content: Mapping[str, Any], *, words: Any = None) -> MechanismSection:
        """Return the section of plain data: the name, and beside it the settings."""
        name, own = content.get("name", DEFAULT), {key: value for key, value in content.items() if key != "name"}
        return cls(name=name, settings=settings_for(str(name), own, words=words))

    @model_serializer(mode="plain")
    def _flat(self, info: SerializationInfo) -> dict[str, Any]:
        settings = self.settings.dumped(mode=info.mode, exclude_defaults=bool(info.exclude_defaults))
        return {"name": self.name, **settings}


class TableSection(_Strict):
    """[[tables]]: a table to publish from the released data."""

    variables: Names = Field(description="Columns of the table, of households or persons.")
    name: str | None = Field(default=None, description="Name of its file; default from the variables.")
    level: str | None = Field(default=None, description="A further column, the geographic level.")

    @property
    def columns(self) -> list[str]:
        """Return all variables of the table."""
        return [*self.variables, *([self.level] if self.level else [])]


class ReleaseSection(_Strict):
    """[release]: where the bundle goes, and what it is for."""

    out: str = Field(description="Folder of the bundle; must not exist. Relative to the plan.")
    format: Literal["parquet", "csv"] = Field(default="parquet", description="Of the released data.")
    title: str | None = Field(
        default=None, description="Title of report and specification; default from the file name."
    )
    purpose: str = Field(default="", description="What the release is for.")
    ledger: str | None = Field(default=None, description="The ledger that keeps account of this release.")
    accept: Names = Field(
        default=[], description='Doubts about protection that you accept, by name, such as "identifier:mark".'
    )
    exposed_share: Rate | None = Field(
        default=None,
        description="The share of unique records above which `exposed` is a doubt; at most that of the policy, "
        "or 1/3 without one.",
    )


class EngineSection(_Strict):
    """[engine]: where the bulk work runs. What is released does not depend on it."""

    name: Literal["local", "spark"] = Field(default="local", description="On this machine, or on a Spark cluster.")
    master: str | None = Field(
        default=None, description="Of a cluster: its address, such as spark://head.agency.example:7077."
    )
    scratch: str | None = Field(
        default=None,
        description="Of a cluster: a folder that this machine and all workers see; default beside the bundle.",
    )
    conf: dict[str, str] = Field(
        default={}, description="Of a cluster: further settings of Spark, such as spark.executor.memory."
    )


class ContextSection(_Strict):
    """[safes.context]: the flow of information in the five parameters of contextual integrity."""

    sender: str = Field(default="", description="Who passes the information on: the agency, the custodian.")
    recipient: str = Field(default="", description="Who receives it: researchers, the general public.")
    subject: str = Field(default="", description="Whom it is about.")
    information_type: str = Field(default="", description="What kind of information it is.")
    transmission_principles: str = Field(default="", description="On what terms it is passed on.")


class SafesSection(_Strict):
    """[safes]: the Five Safes sheet of the release, as far as the custodian recorded it."""

    people: str = Field(default="", description="Who will receive the release, and how they were vetted.")
    projects: str = Field(default="", description="What it will be used for, and why that is appropriate.")
    settings: str = Field(default="", description="Where and how it is accessed, and how that place is secured.")
    data: str = Field(default="", description="How sensitive the data are, and what was taken out or made coarser.")
    outputs: str = Field(default="", description="What is published, and how its disclosure risk was judged.")
    context: ContextSection = Field(default=ContextSection(), description="The flow of information.")
    public: bool = Field(default=True, description="Whether the texts may stand in the public edition of the report.")


class PlanFile(_Strict):
    """A plan: data, mechanism, tables, release and the Five Safes sheet."""

    data: DataSection = Field(description="The confidential files and their identifiers.")
    design: DesignSection | None = Field(default=None, description="How a sample was drawn.")
    prepare: list[AnyStep] = Field(default=[], description="What is done to each record before, in order.")
    mechanism: MechanismSection = Field(description="Which mechanism, and its settings.")
    tables: list[TableSection] = Field(default=[], description="Tables to publish from the released data.")
    release: ReleaseSection = Field(description="Where the bundle goes, and what it is for.")
    safes: SafesSection | None = Field(default=None, description="The Five Safes sheet of the release.")
    engine: EngineSection | None = Field(default=None, description="Where the bulk work runs; default this machine.")

    @property
    def record_type(self) -> str:
        """Return what a row of the main file is, after it was split into households if it is."""
        split = any(isinstance(step, Split) for step in self.prepare)
        return self.data.record or ("household" if split else self.data.record_type)

    @property
    def safes_sheet(self) -> SafesSheet | None:
        """Return the Five Safes sheet as a report shows it, if there is one."""
        if self.safes is None:
            return None
        texts = {name: str(getattr(self.safes, name)) for name in SAFES}
        return SafesSheet(safes=texts, context=self.safes.context.model_dump(), public=self.safes.public)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan, for editors: its mechanism is one of those that are installed."""
    schema = PlanFile.model_json_schema()
    mechanisms, parts = [], {}
    for name, mechanism in usable().items():
        model = mechanism.settings_model
        own = model.model_json_schema()
        parts.update(own.pop("$defs", {}))
        said = {"const": name, "default": name, "description": "The name of the mechanism.", "type": "string"}
        own["properties"] = {"name": said, **{key: own["properties"][key] for key in model.setting_names()}}
        if name != DEFAULT:
            own["required"] = ["name", *own.get("required", [])]
        parts[model.__name__] = own
        sections = {key: own["properties"][key] for key in model.model_fields if model.mark(key, "section")}
        schema["properties"].update(sections)
        mechanisms.append({"$ref": f"#/$defs/{model.__name__}"})
    described = {"description": MechanismSection.__doc__, "oneOf": mechanisms, "title": "MechanismSection"}
    schema["$defs"] = dict(sorted({**schema["$defs"], **parts, "MechanismSection": described}.items()))
    schema["$defs"].pop("Settings", None)
    one = [{"properties": {key: {"type": "string"}}, "required": [key]} for key in RECORD_FILES]
    schema["$defs"]["DataSection"]["oneOf"] = one
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:stirred:plan:1", **schema}

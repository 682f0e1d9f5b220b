"""Surveys: sampling designs, settings of the survey pipeline, and what sampling does to a loss."""

from stirred.survey.amplify import Amplified, Claim, amplify, deamplify
from stirred.survey.attackers import Attacker, attackers
from stirred.survey.compose import compose, compose_joint
from stirred.survey.designs import (
    PPS,
    SRSWOR,
    SRSWR,
    Cluster,
    Design,
    Listed,
    Poisson,
    Stratified,
    Systematic,
    TwoStage,
    design_from,
)
from stirred.survey.imputation import imputation_loss
from stirred.survey.programme import programme_loss, worst_loss
from stirred.survey.sample_design import DrawnSample, SampleStage, SurveyDesign
from stirred.survey.sensitivity import compare_settings, ht_sensitivity, poststrat_sensitivity
from stirred.survey.settings import InvalidSetting, Setting, all_settings

__all__ = [
    "PPS",
    "SRSWOR",
    "SRSWR",
    "Amplified",
    "Attacker",
    "Claim",
    "Cluster",
    "Design",
    "DrawnSample",
    "InvalidSetting",
    "Listed",
    "Poisson",
    "SampleStage",
    "Setting",
    "Stratified",
    "SurveyDesign",
    "Systematic",
    "TwoStage",
    "all_settings",
    "amplify",
    "attackers",
    "compare_settings",
    "compose",
    "compose_joint",
    "deamplify",
    "design_from",
    "ht_sensitivity",
    "imputation_loss",
    "poststrat_sensitivity",
    "programme_loss",
    "worst_loss",
]  # fmt: skip

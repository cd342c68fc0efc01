"""What the Hamilton job computes: each function is a node, and its parameters are the nodes before it."""

import os

import pandas as pd


def spend(rows: int) -> pd.Series:
    return pd.Series(range(rows), dtype="float64") * 3.0


def signups(rows: int) -> pd.Series:
    return pd.Series(range(1, rows + 1), dtype="float64")


def cost_per_signup(spend: pd.Series, signups: pd.Series) -> pd.Series:
    return spend / signups


def spend_zero_mean(spend: pd.Series) -> pd.Series:
    return spend - spend.mean()


def pid(spend_zero_mean: pd.Series) -> pd.Series:
    return pd.Series([os.getpid()] * len(spend_zero_mean))

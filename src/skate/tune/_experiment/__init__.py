"""The persistent part of an experiment: its folder and its journal."""

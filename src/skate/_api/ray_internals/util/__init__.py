"""Stands for parts of `ray.util` that have nothing behind them in Skate."""

"""The methods of `Dataset`, in one class per topic."""

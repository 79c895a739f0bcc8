"""mlx_lm's own tests on axlm: `python -m upstream` in tests/ fetches them, runs them on both packages and compares."""

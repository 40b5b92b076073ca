// Package scipy compares package eval/stats with scipy and statsmodels: both compute the same
// random cases, and every figure must be the same to six digits.
//
// The test needs a virtual environment and is skipped without one:
//
//	python3 -m venv internal/test/scipy/.venv
//	internal/test/scipy/.venv/bin/pip install -r internal/test/scipy/requirements.lock
//	go test ./internal/test/scipy
//
// Environment variables: EVALRUN_SCIPY=required fails where the environment is missing;
// EVALRUN_SCIPY_SEED (default 1) and EVALRUN_SCIPY_CASES (default 100) say what is generated;
// EVALRUN_SCIPY_PYTHON names another Python.
package scipy

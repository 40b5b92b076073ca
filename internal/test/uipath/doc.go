// Package uipath compares evalrun with UiPath's own package, uipath on PyPI: both score the
// same generated eval sets, judge the same files, and UiPath's model reads what evalrun writes.
// Every difference that is accepted has a row in docs/compatibility.md; any other fails.
//
// The tests need a virtual environment and are skipped without one:
//
//	python3 -m venv internal/test/uipath/.venv
//	internal/test/uipath/.venv/bin/pip install -r internal/test/uipath/requirements.lock
//	go test ./internal/test/uipath
//
// Environment variables: EVALRUN_UIPATH=required fails where the environment is missing;
// EVALRUN_UIPATH_SEED (default 1) and EVALRUN_UIPATH_CASES (default 20; about 75 scores each) say
// what is generated; EVALRUN_UIPATH_PYTHON names another Python.
package uipath

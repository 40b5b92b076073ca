// Package promptfoo runs configurations of promptfoo with promptfoo itself, and imported with evalrun,
// against the same server that plays a model: the answers, verdicts and scores are the same.
//
// The tests need promptfoo and the Node that it wants, and are skipped without them:
//
//	npm ci --prefix internal/test/promptfoo --legacy-peer-deps --omit=optional --omit=peer --ignore-scripts
//	go test ./internal/test/promptfoo
//
// EVALRUN_PROMPTFOO=required fails where they are missing.
package promptfoo

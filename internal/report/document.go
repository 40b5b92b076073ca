package report

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/schemas"
)

// WriteResults writes the results document of a view. The document depends on the view alone. At one
// revision it is always the same, byte for byte, but for when the sources of open triggers were asked
// last: a check of which nothing has come leaves the revision.
func WriteResults(w io.Writer, v store.View, o Options) error {
	r, err := FromView(v, o)
	if err != nil {
		return err
	}
	return r.WriteResults(w)
}

// WriteResults writes the report as a results document.
func (r *Report) WriteResults(w io.Writer) error {
	return r.writeResults(w, func(d *document) error {
		none := true
		err := r.each(parts{spans: true}, func(one *schemas.Rollout) error {
			d.element(&none, one)
			return d.err
		})
		d.endElements(none)
		return err
	})
}

// writeResults writes the results document around its rollouts.
func (r *Report) writeResults(w io.Writer, rollouts func(*document) error) error {
	d := newDocument(w)
	d.value(r.Head, "")
	d.unclose("}")
	d.text(",\n  \"evaluationSetResults\": [")
	if err := rollouts(d); err != nil {
		return err
	}
	d.text(",\n  \"datasetEvaluatorResults\": ")
	d.value(datasetOrEmpty(r.Dataset), "  ")
	d.text("\n}\n")
	return d.flush()
}

func datasetOrEmpty(d map[string]eval.DatasetResult) map[string]eval.DatasetResult {
	if d == nil {
		return map[string]eval.DatasetResult{}
	}
	return d
}

// SaveResults brings the results document at path up to date. It holds the run's lock, replaces the
// file as a whole, and never overwrites a higher revision of the same run. If path is not a regular
// file, such as /dev/stdout, the document is written to it. look, if not nil, sees what is saved.
func SaveResults(ctx context.Context, st store.Reader, runID, path string, red *redact.Redactor, look func(*Report) error) (err error) {
	path, isFile, err := durable.Follow(path)
	if err != nil {
		return err
	}
	if !isFile { // it may wait for a reader, whom nobody else has to wait for
		return FromStore(ctx, st, runID, red, func(r *Report) error {
			return errors.Join(durable.WriteOutput(path, 0, r.WriteResults), show(r, look))
		})
	}
	dir := workspace.RunDir(st.Dir(), runID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	mode := fs.FileMode(0o644) // a document that somebody has asked for
	if filepath.Dir(path) == dir {
		mode = 0o600
	}
	lock, err := durable.Lock(filepath.Join(dir, "results.lock"), 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	var looked error
	err = snapshot(ctx, st, runID, red, filepath.Dir(path), func(v store.View, o Options) error {
		run := v.Run()
		if there, err := ReadHead(path); err == nil && there.RunID == run.ID && there.StoreID == o.StoreID && there.Revision > run.Revision {
			r, err := FromView(v, o)
			if err == nil {
				looked = show(r, look)
			}
			return err
		}
		s, err := newSpool(dir)
		if err != nil {
			return err
		}
		defer s.close()
		r, err := fromView(v, o, func(_ *schemas.Rollout, text []byte) error { return s.add(text) })
		if err != nil {
			return err
		}
		looked = show(r, look)
		return durable.WriteFile(path, mode, func(w io.Writer) error { return r.writeResults(w, s.copyTo) })
	})
	if err != nil {
		return fmt.Errorf("the results document %s could not be written: %w", path, err)
	}
	return looked
}

func show(r *Report, look func(*Report) error) error {
	if look == nil {
		return nil
	}
	return look(r)
}

// document writes an indented JSON object piece by piece.
type document struct {
	w *bufio.Writer
	// held is the value that was written last. It is held back until the next piece, so that unclose
	// can open it again.
	held []byte
	err  error
}

func newDocument(w io.Writer) *document { return &document{w: bufio.NewWriterSize(w, 64<<10)} }

// value writes a value and indents its further lines by prefix.
func (d *document) value(v any, prefix string) {
	d.spill()
	if d.err == nil {
		d.held, d.err = indented(v, prefix)
	}
}

// unclose removes the end of the object that was written last, so that more members can follow.
func (d *document) unclose(end string) {
	d.held = d.held[:max(0, len(d.held)-len("\n"+end))]
}

func (d *document) text(s string) {
	d.spill()
	if d.err == nil {
		_, d.err = d.w.WriteString(s)
	}
}

// elementPrefix is how far the elements of an array on the first level are indented.
const elementPrefix = "    "

// element writes one element of an array that stands on the first level.
func (d *document) element(none *bool, v any) {
	d.beginElement(none)
	d.value(v, elementPrefix)
}

func (d *document) beginElement(none *bool) {
	if !*none {
		d.text(",")
	}
	*none = false
	d.text("\n" + elementPrefix)
}

func (d *document) endElements(none bool) {
	if none {
		d.text("]")
	} else {
		d.text("\n  ]")
	}
}

func (d *document) spill() {
	if d.err == nil {
		_, d.err = d.w.Write(d.held)
	}
	d.held = nil
}

func (d *document) flush() error {
	d.spill()
	if d.err != nil {
		return d.err
	}
	return d.w.Flush()
}

// layout is that of encoding/json with indentation and without escapes for HTML.
var layout = jsonv2.JoinOptions(jsonv1.DefaultOptionsV1(), jsontext.EscapeForHTML(false), jsontext.WithIndent("  "))

// indented is a value as JSON, whose further lines are indented by prefix.
func indented(v any, prefix string) ([]byte, error) {
	text, err := jsonv2.Marshal(v, layout, jsontext.WithIndentPrefix(prefix))
	return inert(text), err
}

// inert escapes what a terminal or a CI log would act on if the JSON text were shown there: DEL and
// the control characters above it, which JSON does not escape, and ## as in ##vso[…]. All of them
// can occur only inside strings.
func inert(text []byte) []byte {
	var out []byte
	done := 0
	replace := func(i, n int, r rune) {
		out = fmt.Appendf(append(out, text[done:i]...), `\u%04x`, r)
		done = i + n
	}
	for i := 0; i+1 < len(text); i++ {
		switch c, next := text[i], text[i+1]; {
		case c == '#' && next == '#':
			replace(i, 1, '#')
		case c == 0x7f:
			replace(i, 1, 0x7f)
		case c == 0xc2 && 0x80 <= next && next <= 0x9f:
			replace(i, 2, rune(next))
		}
	}
	if done == 0 {
		return text
	}
	return append(out, text[done:]...)
}

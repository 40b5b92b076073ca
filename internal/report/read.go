package report

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/schemas"
)

// ReadResults reads the head of a results document. It reads to the end, so that it fails for a
// document that was cut off.
func ReadResults(path string) (schemas.Head, error) {
	d, err := readDocument(path, nil)
	return d.Head, err
}

// errEnough ends the reading when only the head of a document is wanted.
var errEnough = errors.New("enough")

// ReadHead reads as much of a document as comes before its rollouts.
func ReadHead(path string) (schemas.Head, error) {
	d, err := readHead(path)
	return d.Head, err
}

// ReadStatistics is ReadHead with the statistics, which may be large.
func ReadStatistics(path string) (schemas.Head, error) {
	d, err := readHead(path)
	if err == nil {
		err = d.readStatistics()
	}
	return d.Head, err
}

func readHead(path string) (*documentReader, error) {
	d, err := openDocument(path)
	if err != nil {
		return &documentReader{}, err
	}
	defer d.file.Close()
	d.headOnly = true
	if err := d.read(nil); err != nil && !errors.Is(err, errEnough) {
		return &documentReader{}, err
	}
	return d, nil
}

func readDocument(path string, each func(*schemas.Rollout) error) (*documentReader, error) {
	d, err := openDocument(path)
	if err != nil {
		return &documentReader{}, err
	}
	defer d.file.Close()
	return d, d.read(each)
}

// documentReader reads a results document token by token.
type documentReader struct {
	schemas.Head
	path     string
	file     *os.File
	dec      *json.Decoder
	keys     []string
	dataset  map[string]eval.DatasetResult
	headOnly bool
	// outline, if not nil, is called with outlines of rollouts.
	outline func(*schemas.Rollout) error
	// statistics are decoded when the version of the document is known.
	statistics json.RawMessage
}

func openDocument(path string) (*documentReader, error) {
	f, err := input.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open the results document: %w", err)
	}
	return &documentReader{path: path, file: f, dec: newDecoder(f), dataset: map[string]eval.DatasetResult{}}, nil
}

// newDecoder returns a decoder that also passes over numbers which no float64 holds, such as 1e400.
func newDecoder(r io.Reader) *json.Decoder {
	dec := json.NewDecoder(r)
	dec.UseNumber()
	return dec
}

// again says what to do about a document that cannot be used.
const again = "give the run's id instead (evalrun list shows the runs): the document is then written anew"

func (d *documentReader) read(each func(*schemas.Rollout) error) error {
	tok, err := d.dec.Token()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s is empty; %s", d.path, again)
	}
	if err != nil {
		return d.broken(err)
	}
	if tok != json.Delim('{') {
		return fmt.Errorf("%s is not a results document: expected a JSON object", d.path)
	}
	for d.dec.More() {
		tok, err := d.dec.Token()
		if err != nil {
			return d.broken(err)
		}
		if err := d.member(tok.(string), each); err != nil {
			return err
		}
	}
	if _, err := d.dec.Token(); err != nil {
		return d.broken(err)
	}
	if _, err := d.dec.Token(); !errors.Is(err, io.EOF) {
		return d.problem("", "expected the end of the file after the document, got more text; "+again)
	}
	if err := d.check(); err != nil {
		return err
	}
	return d.readStatistics()
}

// readStatistics decodes the statistics, whose form depends on the document's version.
func (d *documentReader) readStatistics() (err error) {
	old := major(d.SchemaVersion) == "1"
	switch {
	case d.statistics == nil:
	case old:
		d.Statistics, err = fromVersion1(d.statistics)
	default:
		err = json.Unmarshal(d.statistics, &d.Statistics)
	}
	if err != nil {
		return d.wrong("statistics", err)
	}
	if old {
		d.SchemaVersion, d.Summary = schemas.Version, summary1(d.Summary, d.Statistics)
	}
	return nil
}

func major(version string) string {
	major, _, _ := strings.Cut(version, ".")
	return major
}

// member reads one member of the document.
func (d *documentReader) member(key string, each func(*schemas.Rollout) error) error {
	d.keys = append(d.keys, key)
	if into, ok := d.fields()[key]; ok {
		if err := d.dec.Decode(into); err != nil {
			return d.wrong(key, err)
		}
		return nil
	}
	if key == "evaluationSetResults" {
		if d.headOnly {
			return errEnough
		}
		if each != nil {
			return d.rollouts(each)
		}
	}
	return d.skip()
}

// fields says where the members of the head go.
func (d *documentReader) fields() map[string]any {
	return map[string]any{
		"schemaVersion": &d.SchemaVersion, "runId": &d.RunID, "storeId": &d.StoreID, "storePath": &d.StorePath,
		"revision": &d.Revision, "final": &d.Final, "evaluationSetId": &d.EvaluationSetID,
		"evaluationSetName": &d.EvaluationSetName, "evaluationSetPath": &d.EvaluationSetPath,
		"evaluationSetDigest": &d.EvaluationSetDigest, "dataset": &d.Dataset, "evalIds": &d.EvalIDs,
		"filter": &d.Filter, "retryOf": &d.RetryOf, "commandLine": &d.CommandLine,
		"selection": &d.Selection, "failFast": &d.FailFast, "taskOverrides": &d.TaskOverrides, "isolation": &d.Isolation,
		"isolationReason": &d.IsolationReason, "tags": &d.Tags,
		"metadata": &d.Metadata, "planDigest": &d.PlanDigest, "played": &d.Played, "cachedOutputs": &d.CachedOutputs,
		"simulatedUsers": &d.SimulatedUsers, "rescorings": &d.Rescorings,
		"gitCommit": &d.GitCommit, "gitDirty": &d.GitDirty, "evalrunVersion": &d.EvalrunVersion,
		"startedAt": &d.StartedAt, "finishedAt": &d.FinishedAt, "agents": &d.Agents, "status": &d.Status,
		"summary": &d.Summary, "statistics": &d.statistics, "datasetEvaluatorResults": &d.dataset,
	}
}

func (d *documentReader) rollouts(each func(*schemas.Rollout) error) error {
	if tok, err := d.dec.Token(); err != nil || tok != json.Delim('[') {
		return d.wrong("evaluationSetResults", cmp.Or(err, errors.New("expected an array")))
	}
	if d.outline != nil {
		return d.outlines()
	}
	for i := 0; d.dec.More(); i++ {
		var r schemas.Rollout
		if err := d.dec.Decode(&r); err != nil {
			return d.wrong(fmt.Sprintf("evaluationSetResults[%d]", i), err)
		}
		if err := each(&r); err != nil {
			return err
		}
	}
	if _, err := d.dec.Token(); err != nil {
		return d.broken(err)
	}
	return nil
}

// skip skips one value.
func (d *documentReader) skip() error {
	for depth := 0; ; {
		tok, err := d.dec.Token()
		if err != nil {
			return d.broken(err)
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// broken returns the error for a file that is not JSON, or was cut off.
func (d *documentReader) broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return d.problem("", "the document is cut: the file ends in the middle of it; "+again)
	}
	return d.problem("", "not a results document, for it is not valid JSON: "+err.Error())
}

// wrong returns the error for the value that was read last.
func (d *documentReader) wrong(key string, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return d.broken(err)
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		if kind.Field != "" {
			key += "." + kind.Field
		}
		return d.problem(key, fmt.Sprintf("expected %s, got %s; %s", expected(kind.Type), article(kind.Value), again))
	}
	return d.problem(key, err.Error()+"; "+again)
}

// problem returns an error at the place up to which the document was read.
func (d *documentReader) problem(key, message string) error {
	p := input.Problem{File: d.path, Key: key, Message: message}
	f, err := os.Open(d.path)
	if err != nil {
		return p
	}
	defer f.Close()
	text := bufio.NewReader(io.LimitReader(f, d.dec.InputOffset()))
	p.Line, p.Column = 1, 1
	for {
		r, _, err := text.ReadRune()
		switch {
		case err != nil:
			return p
		case r == '\n':
			p.Line, p.Column = p.Line+1, 1
		default:
			p.Column++
		}
	}
}

// expected names the JSON type that a Go type is read from.
func expected(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a number"
}

// article puts an article before the name of a JSON type.
func article(name string) string {
	switch name {
	case "array", "object":
		return "an " + name
	case "bool":
		return "a boolean"
	}
	return "a " + name
}

// check says whether the document is one of evalrun's.
func (d *documentReader) check() error {
	has := func(keys ...string) bool {
		for _, key := range keys {
			found := false
			for _, k := range d.keys {
				found = found || k == key
			}
			if !found {
				return false
			}
		}
		return true
	}
	switch {
	case has("evaluationSetResults") && !has("runId"):
		return fmt.Errorf("%s is an eval output of UiPath's own format, which does not say of which run; give evalrun's results document or the run's id", d.path)
	case has("evaluations"):
		return fmt.Errorf("%s is an eval set, not a results document; start it with evalrun run", d.path)
	case !has("schemaVersion", "runId", "storeId", "revision", "evaluationSetResults"):
		return fmt.Errorf("%s is not a results document of evalrun: expected the keys schemaVersion, runId, storeId, revision and evaluationSetResults", d.path)
	case major(d.SchemaVersion) != "1" && major(d.SchemaVersion) != major(schemas.Version):
		return fmt.Errorf("%s has the schema version %q, this evalrun knows 1 and 2; update evalrun", d.path, d.SchemaVersion)
	case d.RunID == "" || d.StoreID == "":
		return fmt.Errorf("%s: runId or storeId is empty; %s", d.path, again)
	}
	return nil
}

// outlines reads the array of rollouts, whose bracket was read. It replaces d.dec by a decoder that
// goes on behind the array.
func (d *documentReader) outlines() error {
	rest := io.MultiReader(d.dec.Buffered(), d.file)
	// This is as lenient as encoding/json.
	dec := jsontext.NewDecoder(io.MultiReader(strings.NewReader("["), rest),
		jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		one, err := outline(value)
		if err != nil {
			return err
		}
		if err := d.outline(one); err != nil {
			return err
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	d.dec = newDecoder(io.MultiReader(strings.NewReader(`{"":0`), bytes.NewReader(dec.UnreadBuffer()), rest))
	for range 3 { // the tokens that stand for the members before
		if _, err := d.dec.Token(); err != nil {
			return err
		}
	}
	return nil
}

package eval

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/input"
)

// Defaults of an eval set that does not say otherwise.
const (
	defaultEvaluatorTimeout = 5 * time.Minute
	defaultSuspensions      = 100
	defaultOutputBytes      = 16 << 20
	defaultBackoff          = time.Second
	defaultMaxBackoff       = time.Minute
)

// Load reads the eval set at path with its evaluators: those in the folder ../evaluators beside the
// set's own folder, as UiPath lays them out, and those inline under `evaluators`. A bare file name
// is looked for in evaluations/eval-sets as well.
//
// The problems hold everything that was found, warnings included. The error is what makes the set
// unusable: the problems that are not warnings, or that the file cannot be read. A caller that
// wants strictness asks problems.Err(true).
func Load(path string) (*Set, input.Problems, error) {
	data, err := input.ReadFile(path, input.MaxFile)
	if errors.Is(err, fs.ErrNotExist) && filepath.Base(path) == path {
		inProject := filepath.Join("evaluations", "eval-sets", path)
		if found, errProject := input.ReadFile(inProject, input.MaxFile); errProject == nil {
			path, data, err = inProject, found, nil
		}
	}
	if err != nil {
		return nil, nil, err
	}
	dir := filepath.Join(filepath.Dir(path), "..", "evaluators")
	if _, err := os.Stat(dir); err != nil {
		return Parse(path, data, nil)
	}
	return Parse(path, data, os.DirFS(dir))
}

// Parse is Load for bytes: path names the file in messages and tells JSON from YAML, evaluators is
// the folder of evaluator files (nil if there is none).
func Parse(path string, data []byte, evaluators fs.FS) (*Set, input.Problems, error) {
	root, err := input.Parse(path, data)
	if err != nil {
		return nil, asProblems(err), err
	}
	l := &loader{files: evaluators, filesDir: filepath.Join(filepath.Dir(path), "..", "evaluators")}
	set := l.set(path, root)
	if err := l.Problems.Err(false); err != nil {
		return nil, l.Problems, err
	}
	sum := sha256.Sum256(data)
	set.Digest = "sha256:" + hex.EncodeToString(sum[:])
	return set, l.Problems, nil
}

func asProblems(err error) input.Problems {
	var p input.Problem
	if errors.As(err, &p) {
		return input.Problems{p}
	}
	return nil
}

// loader reads one eval set.
type loader struct {
	input.Reader
	files    fs.FS
	filesDir string
}

func (l *loader) set(path string, root *input.Node) *Set {
	f := l.Object(root)
	if root.Kind != input.Object {
		return nil
	}
	legacy := l.isLegacy(f)
	set := &Set{ID: f.RequiredString("id"), Name: f.RequiredString("name"), Path: path, Node: root}
	f.Ignore("$schema", "description", "modelSettings", "agentMemoryEnabled", "agentMemorySettings", "fileName", "batchSize",
		"timeoutMinutes", "createdAt", "updatedAt")
	l.definitions(f, set, legacy)
	l.agents(f, set)
	set.Jobs = f.Optional("jobs", input.Object)
	set.Notify = f.Get("notify")
	set.Judges = f.Optional("judges", input.Object)
	set.Tasks = f.Strings("tasks")
	set.Tags, set.Metadata = l.tags(f), f.Optional("metadata", input.Object).JSON()
	l.tasks(f)
	l.epochs(f, set)
	if method := f.Enum("interval", string(stats.Bounded), string(stats.Bounded), string(stats.Student)); method != string(stats.Bounded) {
		set.Interval = stats.Method(method)
	}
	set.Prices = ParsePrices(&l.Reader, f.Get("prices"))
	l.limits(f, set)
	l.retry(f, set)
	l.thresholds(f, set)
	l.faults(f, set)
	set.DefaultCriteria = l.defaultCriteria(f, set, legacy)
	if f.Has("tasks") || f.Has("dataset") {
		f.Optional("evaluations", input.Array)
	} else {
		f.Required("evaluations", input.Array)
	}
	if n := f.Get("evaluations"); n != nil && n.Kind == input.Array {
		l.evaluations(n, set, legacy)
	}
	if set.DatasetNode = f.Optional("dataset", input.Object); set.DatasetNode != nil && legacy {
		l.Errorf(set.DatasetNode, `expected a set of version "1.0"; the legacy format has no data sets`)
	}
	f.Done()
	return set
}

// isLegacy tells the two formats of UiPath apart by `version`. The current one must say the string
// "1.0" and nothing else; without a version the set is of the legacy format, unless it uses what
// only the current one has.
func (l *loader) isLegacy(f *input.Fields) bool {
	n := f.Get("version")
	if n == nil || n.Kind == input.Null {
		if current := looksCurrent(f); current != "" {
			l.Warnf(f.Node, `version is missing; the set is read as version "1.0" because it has %s (UiPath would read it as its legacy format)`, current)
			return false
		}
		return !slices.ContainsFunc([]string{"tasks", "evaluators", "dataset", "defaultCriterias"}, f.Has)
	}
	version, err := strconv.ParseFloat(n.Text, 64)
	if n.Kind == input.String && n.Text == "1.0" {
		return false
	}
	if (n.Kind == input.String || n.Kind == input.Number) && err == nil && version < 1 {
		return true
	}
	got := n.Kind.String()
	if n.Text != "" {
		got += " " + n.Text
	}
	l.Errorf(n, `expected the string "1.0", got %s`, got)
	return false
}

func looksCurrent(f *input.Fields) string {
	n := f.Get("evaluations")
	if n == nil {
		return ""
	}
	for _, item := range n.Items {
		for _, key := range []string{"evaluationCriterias", "evaluation_criterias"} {
			if item.Member(key) != nil {
				return key
			}
		}
	}
	return ""
}

func (l *loader) agents(f *input.Fields, set *Set) {
	if n := f.Get("agent"); n != nil && n.Kind != input.Null {
		set.Agents = append(set.Agents, n)
		if f.Has("agents") {
			l.Errorf(n, "expected either agent or agents, got both")
		}
	}
	if n := f.Optional("agents", input.Array); n != nil {
		set.Agents = append(set.Agents, n.Items...)
		if len(n.Items) == 0 {
			l.Errorf(n, "expected at least one agent")
		}
	}
	for _, n := range set.Agents {
		if n.Kind != input.String && n.Kind != input.Object || n.Kind == input.String && n.Text == "" {
			l.Errorf(n, "expected an agent's name or an object, got %s", n.Kind)
		}
	}
}

// tasks checks the globs; package tasks expands them.
func (l *loader) tasks(f *input.Fields) {
	n := f.Get("tasks")
	if n == nil {
		return
	}
	for _, item := range n.Items {
		if _, err := filepath.Match(item.Text, ""); item.Kind == input.String && (err != nil || item.Text == "") {
			l.Errorf(item, `expected a glob of task directories such as "tasks/*", got %q`, item.Text)
		}
	}
}

func (l *loader) epochs(f *input.Fields, set *Set) {
	const most = 10_000
	set.Epochs, set.Reduce = 1, ReduceMean
	n := f.Get("epochs")
	switch {
	case n == nil || n.Kind == input.Null:
	case n.Kind == input.Object:
		e := l.Object(n)
		set.Epochs = e.Int("count", 1, 1, most)
		set.Reduce = Reducer(e.Enum("reduce", string(ReduceMean), string(ReduceMean), string(ReduceAtLeastOne), string(ReduceAll)))
		e.Done()
	case n.Kind == input.Number:
		set.Epochs = f.Int("epochs", 1, 1, most)
	default:
		l.Errorf(n, `expected a whole number or an object such as {"count": 3, "reduce": "mean"}, got %s`, n.Kind)
	}
}

func (l *loader) limits(f *input.Fields, set *Set) {
	set.Limits = Limits{EvaluatorTimeout: defaultEvaluatorTimeout, Suspensions: defaultSuspensions, OutputBytes: defaultOutputBytes}
	n := f.Optional("limits", input.Object)
	if n == nil {
		return
	}
	o := l.Object(n)
	set.Limits = Limits{
		Timeout:          o.Duration("timeout", 0),
		SegmentTimeout:   o.Duration("segmentTimeout", 0),
		SuspendTimeout:   o.Duration("suspendTimeout", 0),
		ScoreTimeout:     o.Duration("scoreTimeout", 0),
		EvaluatorTimeout: o.Duration("evaluatorTimeout", defaultEvaluatorTimeout),
		SoftWait:         o.Duration("softWait", 0),
		Suspensions:      o.Int("suspensions", defaultSuspensions, 0, 1_000_000),
		OutputBytes:      int64(o.Int("outputBytes", defaultOutputBytes, 1, 1<<30)),
		Tokens:           int64(o.Int("tokens", 0, 1, 1e15)),
		Cost:             o.Float("cost", 0, 0, maxPrice),
	}
	if cost := o.Get("cost"); o.Has("cost") && cost.Kind == input.Number {
		switch {
		case set.Limits.Cost == 0:
			l.Errorf(cost, "expected more than 0 US dollars")
		case len(set.Prices) == 0:
			l.Errorf(cost, "a limit of cost needs prices of the models: %s", `"prices": {"gpt-5-mini": {"input": 0.25, "cachedInput": 0.025, "output": 2}}`)
		}
	}
	o.Done()
}

func (l *loader) retry(f *input.Fields, set *Set) {
	set.Retry = Retry{Backoff: defaultBackoff, MaxBackoff: defaultMaxBackoff}
	n := f.Optional("retry", input.Object)
	if n == nil {
		return
	}
	o := l.Object(n)
	set.Retry = Retry{
		Max:        o.Int("max", 0, 0, 1000),
		On:         o.Strings("on"),
		Backoff:    o.Duration("backoff", defaultBackoff),
		MaxBackoff: o.Duration("maxBackoff", defaultMaxBackoff),
	}
	if set.Retry.MaxBackoff < set.Retry.Backoff {
		l.Errorf(n, "maxBackoff (%s) is less than backoff (%s)", set.Retry.MaxBackoff, set.Retry.Backoff)
	}
	if set.Retry.Max > 0 && len(set.Retry.On) == 0 {
		l.Warnf(n, `retry.on is empty, so that nothing is repeated; expected fault categories, or "*" for every one`)
	}
	if limits := set.Limits; set.Retry.Max > 0 && slices.Contains(set.Retry.On, "timeout") && limits.Timeout > 0 &&
		(limits.SegmentTimeout == 0 || limits.SegmentTimeout >= limits.Timeout) {
		l.Warnf(o.Get("on"), "timeout is never repeated here: limits.timeout (%s) is for all attempts together, and nothing is left of it then; "+
			"limits.segmentTimeout is the limit of one attempt", limits.Timeout)
	}
	o.Done()
}

// faults reads whose the faults of some categories are. Who knows the categories checks them.
func (l *loader) faults(f *input.Fields, set *Set) {
	n := f.Optional("faults", input.Object)
	if n == nil {
		return
	}
	o := l.Object(n)
	set.Faults = map[string]string{}
	for _, m := range n.Members {
		if m.Value.Kind == input.Null {
			l.Errorf(m.Value, "expected agent or environment, got null")
		}
		set.Faults[m.Key] = o.Enum(m.Key, "environment", "agent", "environment")
	}
	o.Done()
}

// list joins names for a message.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func ids(defs []Definition) []string {
	out := make([]string, len(defs))
	for i, def := range defs {
		out[i] = def.ID
	}
	return out
}

func hasDefinition(set *Set, id string) bool {
	for _, def := range set.Evaluators {
		if def.ID == id {
			return true
		}
	}
	return false
}

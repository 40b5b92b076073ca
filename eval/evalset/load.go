// Package evalset reads eval sets and evaluator files of UiPath's formats and evalrun's own, and
// reports every problem at its line.
package evalset

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/input"
)

// Load reads the eval set at path with its evaluators: those in the folder ../evaluators beside the
// set's own folder, as UiPath lays them out, and those inline under `evaluators`. A bare file name
// is looked for in evaluations/eval-sets as well.
//
// The problems hold everything that was found, warnings included. The error says why the set is
// unusable: the problems that are not warnings, or that the file cannot be read. A caller that
// wants strictness asks problems.Err(true).
func Load(path string) (*eval.Set, input.Problems, error) {
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

// Parse is like Load for bytes: path names the file in messages and tells JSON from YAML,
// evaluators is the folder of evaluator files (nil if there is none).
func Parse(path string, data []byte, evaluators fs.FS) (*eval.Set, input.Problems, error) {
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

func (l *loader) set(path string, root *input.Node) *eval.Set {
	f := l.Object(root)
	if root.Kind != input.Object {
		return nil
	}
	legacy := l.isLegacy(f)
	set := &eval.Set{ID: f.RequiredString("id"), Name: f.RequiredString("name"), Path: path, Node: root}
	f.Ignore("$schema", "description", "modelSettings", "agentMemoryEnabled", "agentMemorySettings", "fileName",
		"batchSize",
		"timeoutMinutes", "createdAt", "updatedAt")
	l.definitions(f, set, legacy)
	l.agents(f, set)
	set.Jobs = f.Optional("jobs", input.Object)
	set.Notify, set.Answers, set.Mocks = f.Get("notify"), f.Get("answers"), f.Get("mocks")
	set.Judges = f.Optional("judges", input.Object)
	set.Tasks = f.Strings("tasks")
	set.Tags, set.Metadata = l.tags(f), f.Optional("metadata", input.Object).JSON()
	l.tasks(f)
	l.epochs(f, set)
	method := stats.Method(f.Enum("interval", string(stats.Bounded), string(stats.Bounded), string(stats.Student)))
	if method != stats.Bounded {
		set.Interval = method
	}
	set.Prices = eval.ParsePrices(&l.Reader, f.Get("prices"))
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
// "1.0" and nothing else; without a version the set is of the legacy format, unless it uses a key
// of the current one alone.
func (l *loader) isLegacy(f *input.Fields) bool {
	n := f.Get("version")
	if n == nil || n.Kind == input.Null {
		if current := looksCurrent(f); current != "" {
			l.Warnf(f.Node,
				`version is missing; the set is read as version "1.0" because it has %s (UiPath would read it as its legacy format)`,
				current)
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

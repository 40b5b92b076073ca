package evalset

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/internal/input"
)

// evaluatorFile is a file of the evaluators folder with the problems and the definition in it.
type evaluatorFile struct {
	eval.Definition
	problems input.Problems
	file     string
}

// reference is an entry of evaluatorRefs or evaluatorConfigs.
type reference struct {
	id     string
	weight *float64 // nil if the entry does not say
	node   *input.Node
}

// definitions finds the set's evaluators: first those of its references among the files, in the
// order of the files' names, then those inline.
func (l *loader) definitions(f *input.Fields, set *eval.Set, legacy bool) {
	refs := l.references(f, legacy)
	inline := l.inline(f)
	files := l.evaluatorFiles()
	weights := map[string]*float64{}
	for _, ref := range refs {
		if ref.id != "" {
			weights[ref.id] = ref.weight
		}
	}
	known := map[string]string{}
	use := func(def eval.Definition, where string, node *input.Node) {
		if earlier, ok := known[def.ID]; ok {
			l.Errorf(node, "two evaluators have the id %q: in %s and in %s", def.ID, earlier, where)
			return
		}
		known[def.ID] = where
		if weight := weights[def.ID]; weight != nil {
			def.Weight = *weight
		}
		set.Evaluators = append(set.Evaluators, def)
	}
	for _, file := range files {
		_, referenced := weights[file.ID]
		l.fileProblems(file, referenced)
		if referenced {
			i := slices.IndexFunc(refs, func(r reference) bool { return r.id == file.ID })
			use(file.Definition, file.file, refs[i].node)
		}
	}
	for _, def := range inline {
		use(def.Definition, "evaluators", def.node)
	}
	if n := f.Get("evaluations"); !legacy && n != nil {
		l.addChecks(n, set, known)
	}
	l.missing(refs, files, inline, known)
}

// fileProblems reports the problems of an evaluator file. In a file that is not used, errors become
// warnings, and warnings are dropped.
func (l *loader) fileProblems(file evaluatorFile, used bool) {
	for _, p := range file.problems {
		if !used && p.Warning {
			continue
		}
		p.Warning = p.Warning || !used
		l.Problems = append(l.Problems, p)
	}
}

// missing reports references to evaluators that do not exist, and names those that do.
func (l *loader) missing(refs []reference, files []evaluatorFile, inline []inlineDefinition, known map[string]string) {
	var exist []string
	for _, file := range files {
		if file.ID != "" {
			exist = append(exist, file.ID)
		}
	}
	for _, def := range inline {
		exist = append(exist, def.ID)
	}
	for _, ref := range refs {
		if _, ok := known[ref.id]; !ok && ref.id != "" {
			l.Errorf(ref.node, "no evaluator has the id %q; in %s and under `evaluators` there are: %s%s",
				ref.id, filepath.ToSlash(l.filesDir), input.List(exist), input.Suggest(ref.id, exist))
		}
	}
}

// references reads evaluatorConfigs, which replaces evaluatorRefs unless it is empty. The legacy
// format drops it.
func (l *loader) references(f *input.Fields, legacy bool) []reference {
	var refs []reference
	list := f.Optional("evaluatorRefs", input.Array)
	configs := f.Optional("evaluatorConfigs", input.Array)
	if !legacy && configs != nil && len(configs.Items) > 0 {
		list = configs
	}
	if list == nil {
		return nil
	}
	for _, item := range list.Items {
		ref := reference{id: item.Text, node: item}
		switch {
		case item.Kind == input.String:
		case item.Kind == input.Object && list == configs:
			o := l.Object(item)
			ref.id = o.RequiredString("ref")
			if o.Has("weight") {
				weight := o.Float("weight", 1, 0, eval.MaxWeight)
				ref.weight = &weight
			}
			o.Done()
		default:
			l.Errorf(item, "expected an evaluator's id, got %s", item.Kind)
			continue
		}
		refs = append(refs, ref)
	}
	return refs
}

// inlineDefinition is an evaluator of the set's own key `evaluators`.
type inlineDefinition struct {
	eval.Definition
	node *input.Node
}

func (l *loader) inline(f *input.Fields) []inlineDefinition {
	n := f.Optional("evaluators", input.Array)
	if n == nil {
		return nil
	}
	var defs []inlineDefinition
	for _, item := range n.Items {
		if def := readDefinition(&l.Reader, item); def.ID != "" {
			defs = append(defs, inlineDefinition{def, item})
		}
	}
	return defs
}

// evaluatorFiles parses every *.json in the evaluators folder, in the order of their names.
func (l *loader) evaluatorFiles() []evaluatorFile {
	if l.files == nil {
		return nil
	}
	names, err := fs.Glob(l.files, "*.json")
	if err != nil {
		return nil // the pattern is well formed
	}
	slices.Sort(names)
	files := make([]evaluatorFile, 0, len(names))
	for _, name := range names {
		file := filepath.Join(l.filesDir, name)
		data, err := input.ReadFS(l.files, name, input.MaxFile)
		if err != nil {
			files = append(files, evaluatorFile{file: file,
				problems: input.Problems{{File: file, Message: err.Error()}}})
			continue
		}
		def, problems, _ := ParseEvaluator(file, data) // the error is among the problems
		def.Dir = "../evaluators"
		files = append(files, evaluatorFile{def, problems, file})
	}
	return files
}

// ParseEvaluator reads one evaluator file, of UiPath's current or legacy format or with the type
// "command".
func ParseEvaluator(file string, data []byte) (eval.Definition, input.Problems, error) {
	node, err := input.Parse(file, data)
	if err != nil {
		return eval.Definition{}, asProblems(err), err
	}
	var r input.Reader
	def := readDefinition(&r, node)
	return def, r.Problems, r.Problems.Err(false)
}

// readDefinition reads an evaluator object. Its type is the Python class that evaluatorSchema
// names, or the string evaluatorTypeId, or type; where none of them is there the object is of the
// legacy format, whose type is a number.
func readDefinition(r *input.Reader, node *input.Node) eval.Definition {
	f := r.Object(node)
	if node.Kind != input.Object {
		return eval.Definition{}
	}
	def := eval.Definition{ID: f.RequiredString("id"), Weight: 1}
	kind := f.Get("evaluatorTypeId")
	if t := f.Get("type"); kind == nil && t != nil && t.Kind == input.String {
		kind = t
	}
	if schema := f.Get("evaluatorSchema"); schema != nil && strings.HasPrefix(schema.Text, evaluator.CustomPrefix) {
		if file, class, _ := strings.Cut(strings.TrimPrefix(schema.Text, evaluator.CustomPrefix), ":"); file == "" ||
			class == "" {
			r.Errorf(schema, "expected a Python class as in file://correct_operator.py:CorrectOperatorEvaluator, "+
				"got %q", schema.Text)
		}
		kind = schema // UiPath too lets the schema decide, whatever the type says
		f.Ignore("evaluatorTypeId", "type")
	}
	if kind == nil {
		readLegacyDefinition(r, f, &def)
		return def
	}
	if kind.Kind != input.String {
		r.Errorf(kind, "expected an evaluator type, got %s", kind.Kind)
		return def
	}
	if n := f.Get("version"); n != nil && (n.Kind != input.String || n.Text != "1.0") {
		r.Errorf(n, `expected the string "1.0"`)
	}
	f.Ignore("description", "evaluatorSchema", "createdAt", "updatedAt", "fileName", "$schema")
	def.Type = kind.Text
	def.Weight = f.Float("weight", 1, 0, eval.MaxWeight)
	config := f.Optional("evaluatorConfig", input.Object)
	if config == nil {
		config = &input.Node{Kind: input.Object, File: node.File, Line: node.Line, Column: node.Column, Path: node.Path}
	}
	if kind := kinds.All[def.Type]; kind.KeysBeside {
		config = ownConfig(f, config, kind.Keys)
	}
	def.Config = config.JSON()
	def.Name = f.String("name", "")
	if name := config.Member("name"); def.Name == "" && name != nil {
		def.Name = name.Text
	}
	if def.Name == "" {
		def.Name = def.ID
	}
	f.RefuseLike("thresholds.evaluators of the set", namesThreshold)
	f.Done()
	validate(r, &def, kind, config)
	return def
}

// validate checks type and configuration.
func validate(r *input.Reader, def *eval.Definition, kind, config *input.Node) {
	if strings.HasPrefix(def.Type, evaluator.CustomPrefix) {
		return // its class knows its configuration
	}
	if _, ok := kinds.All[def.Type]; !ok || strings.HasPrefix(def.Type, "legacy-") {
		current := slices.DeleteFunc(kinds.All.Types(), func(t string) bool { return strings.HasPrefix(t, "legacy-") })
		r.Errorf(kind, "unknown evaluator type %q; expected one of %s, or file://…%s", def.Type, input.List(current),
			input.Suggest(def.Type, current))
		return
	}
	kinds.All.Read(r, *def, config)
}

// ownConfig puts the keys beside the configuration into it.
func ownConfig(f *input.Fields, config *input.Node, keys []evaluator.Key) *input.Node {
	merged := *config
	for _, k := range append(slices.Clip(keys), evaluator.Key{Name: "defaultEvaluationCriteria"}) {
		if n := f.Get(k.Name); n != nil && config.Member(k.Name) == nil {
			merged.Members = append(slices.Clip(merged.Members),
				input.Member{Key: k.Name, Line: n.Line, Column: n.Column, Value: n})
		}
	}
	return &merged
}

// legacyTypes are the evaluators of UiPath's legacy category "deterministic".
var legacyTypes = map[int]string{1: "legacy-equals", 6: "legacy-json-similarity", 10: "legacy-csv-column-exact-match"}

// readLegacyDefinition reads a legacy evaluator file: category 0 is deterministic, 1 an LLM judge
// whatever its type, 3 a trajectory judge; UiPath cannot use the rest.
func readLegacyDefinition(r *input.Reader, f *input.Fields, def *eval.Definition) {
	if f.Get("category") == nil && f.Get("type") == nil {
		r.Errorf(f.Node, "expected evaluatorTypeId (with version \"1.0\"), or category and type of a legacy "+
			"evaluator file")
		return
	}
	def.Name = f.String("name", def.ID)
	def.Config = f.Node.JSON()
	def.Weight = f.Float("weight", 1, 0, eval.MaxWeight)
	category := f.Required("category", input.Number)
	kind := f.Required("type", input.Number)
	if category == nil || kind == nil {
		return
	}
	switch c := f.Int("category", 0, 0, 3); c {
	case 0:
		t := f.Int("type", 0, 0, 10)
		if def.Type = legacyTypes[t]; def.Type == "" {
			r.Errorf(kind, "expected 1 (equals), 6 (JSON similarity) or 10 (CSV columns) in category 0, got %d", t)
			return
		}
	case 1:
		def.Type = "legacy-llm-judge"
	case 3:
		def.Type = "legacy-trajectory"
	default:
		r.Errorf(category, "expected 0 (deterministic), 1 (LLM judge) or 3 (trajectory), got %d", c)
		return
	}
	kinds.All.Read(r, *def, f.Node)
}

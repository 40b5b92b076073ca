// Package starter writes a first project: an eval set, an agent, and a workflow for CI, adapted to
// the files that a folder already has.
package starter

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/internal/agent/nodeagent"
	"github.com/evalrun/evalrun/internal/agent/pyagent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/tasks"
)

//go:embed all:templates
var templates embed.FS

// ErrThere is the error for a folder that already has one of the files.
var ErrThere = errors.New("nothing was written, as nothing is overwritten")

// Template is a kind of project that can be written.
type Template struct{ Name, For string }

// Templates lists all templates.
var Templates = []Template{
	{"first", "an eval set, its data and an agent in Python"},
	{"python", "the same for a Python project, whose packages the agent can import"},
	{"langgraph", "an eval set for a graph of langgraph.json, which is run as it is"},
	{"uipath", "an eval set for a function or an agent of uipath.json, which is run as it is"},
	{"openai-agents", "an eval set for an agent of the OpenAI Agents SDK, which is run as it is"},
	{"pydantic-ai", "an eval set for an agent of Pydantic AI, which is run as it is"},
	{"llamaindex", "an eval set for a workflow of LlamaIndex, which is run as it is"},
	{"google-adk", "an eval set for an agent of Google's ADK, which is run as it is"},
	{"node", "an eval set for a function or an agent in TypeScript, which is run as it is"},
	{"tasks", "an eval set of the task directories"},
	{"sets", "a workflow alone, for an eval set that is there"},
}

// Names returns the names of all templates.
func Names() (names []string) {
	for _, t := range Templates {
		names = append(names, t.Name)
	}
	return names
}

// Project is a project that was, or will be, written.
type Project struct {
	// Template is one of Templates. Why says what decided on it, empty if nothing did. Also is what else
	// was seen, and does not matter beside that.
	Template, Why string
	Also          []string
	// Entrypoint is the agent of the project that is run as it is, and Program is what runs it: a path, or
	// why there is none. They are empty for other templates.
	Entrypoint, Program string
	// EvalSet is the eval set that the workflow runs, Agent its --agent; empty if the set has its own.
	EvalSet, Agent string
	// OtherSets are the eval sets that the workflow leaves out.
	OtherSets []string
	// Files are the files to write, relative to the folder.
	Files []string

	replace []string
}

// firstSet is the eval set that templates write.
const firstSet = "evals/evalset.yaml"

// Choose chooses a project by the content of a folder. If a template is given, it uses that.
func Choose(dir, template string) (*Project, error) {
	p := &Project{Template: template, EvalSet: firstSet}
	sets, own := evalSets(dir)
	dirs := taskDirs(dir)
	chosen := template != ""
	find := func(template, why string, is bool) {
		switch {
		case !is || chosen:
		case p.Template == "":
			p.Template, p.Why = template, why
		default:
			p.Also = append(p.Also, strings.TrimSuffix(why, " is there"))
		}
	}
	find("sets", strings.Join(sets[:min(len(sets), 1)], "")+" is there", len(sets) > 0 && own)
	inNode, node, err := nodeagent.Type.InProject(dir)
	if err != nil {
		return nil, err
	}
	named := "langgraph.json"
	if node && strings.Contains(inNode.Settings.(*nodeagent.Settings).Entrypoint, ":") {
		named = "package.json"
	}
	find("node", named+" names an agent for Node", node)
	find("langgraph", "langgraph.json is there", is(dir, "langgraph.json") && !node)
	find("openai-agents", "openai_agents.json is there", is(dir, "openai_agents.json"))
	find("pydantic-ai", "pydantic_ai.json is there", is(dir, "pydantic_ai.json"))
	find("llamaindex", "llama_index.json is there", is(dir, "llama_index.json"))
	find("google-adk", "google_adk.json is there", is(dir, "google_adk.json"))
	find("uipath", "uipath.json is there", is(dir, "uipath.json"))
	find("tasks", "task directories are there", dirs != "")
	if p.Template == "" {
		if found, ok := pyagent.FindModule(dir); ok {
			p.Template, p.Why = found.Type, found.Entrypoint+" is an agent"
		} else if place, ok := nodeagent.FindModule(dir); ok {
			p.Template, p.Why = nodeagent.Name, place+" is an agent"
		}
	}
	find("python", "pyproject.toml is there", is(dir, "pyproject.toml"))
	if p.Template == "" {
		p.Template = "first"
	}
	switch {
	case !slices.Contains(Names(), p.Template):
		return nil, fmt.Errorf("there is no template %q%s", p.Template, input.Suggest(p.Template, Names()))
	case p.Template == "sets" && len(sets) == 0:
		return nil, errors.New(
			"there is no eval set for the template sets: none in evals/, evaluations/eval-sets/ or evalset.json")
	case p.Template == "tasks" && dirs == "":
		return nil, errors.New(
			"there are no task directories for the template tasks: none with a task.toml in *, tasks/* or evals/*")
	}
	if p.asItIs() {
		p.Entrypoint = entrypoint(dir, p.Template)
		if p.Template == nodeagent.Name && node {
			p.Entrypoint = inNode.Settings.(*nodeagent.Settings).Entrypoint
		}
		if p.Entrypoint == "" {
			return nil, fmt.Errorf("there is no agent for the template %s: none that %s names, and no module that makes one",
				p.Template, cmp.Or(pyagent.FileOf(p.Template), "package.json"))
		}
		p.Program = programOf(dir, p.Template)
	}
	p.replace = []string{"__PYTHON__", python(dir), "__TASKS__", dirs, "__ENTRYPOINT__", p.Entrypoint}
	p.replace = append(p.replace, p.questions(dir)...)
	p.useSets(sets, own)
	return p, nil
}

// useSets uses existing eval sets in place of the template's.
func (p *Project) useSets(sets []string, own bool) {
	p.Files = []string{".github/workflows/evals.yml", "evals/install.sh"}
	switch {
	case p.Template == "sets":
		p.EvalSet, p.OtherSets = sets[0], sets[1:]
	case p.asItIs() && len(sets) > 0 && !own:
		p.EvalSet, p.OtherSets, p.Agent = sets[0], sets[1:], "evals/agent.json"
		p.Files = append(p.Files, p.Agent)
	default:
		p.Files = append(p.Files, p.template()...)
	}
	run := p.EvalSet
	if p.Agent != "" {
		run += " --agent " + p.Agent
	}
	p.replace = append(p.replace, "__TEMPLATE__", p.Template, "__RUN__", run, "__EVALSET__", p.EvalSet)
	slices.Sort(p.Files)
}

// asItIs reports whether the agent is the project's own.
func (p *Project) asItIs() bool {
	return !slices.Contains([]string{"first", "python", "tasks", "sets"}, p.Template)
}

// folder is the folder of the template: all agents that are run as they are share one.
func (p *Project) folder() string {
	if p.asItIs() {
		return "agent"
	}
	return p.Template
}

// template lists the files of the template itself.
func (p *Project) template() (files []string) {
	entries, _ := fs.ReadDir(templates, path.Join("templates", p.folder())) // the templates are embedded
	for _, entry := range entries {
		files = append(files, "evals/"+entry.Name())
	}
	if p.Template == "python" {
		files = append(files, "evals/agent.py", "evals/cases.csv")
	}
	return files
}

func is(dir, name string) bool {
	info, err := os.Stat(filepath.Join(dir, name))
	return err == nil && info.Mode().IsRegular()
}

// EvalSets returns the eval sets that lie at the usual places of a folder, relative to it.
func EvalSets(dir string) []string {
	sets, _ := evalSets(dir)
	return sets
}

// evalSets returns the eval sets of a folder. own is set if they have agents of their own.
func evalSets(dir string) (sets []string, own bool) {
	for _, pattern := range []string{
		"evalset.json", "evalset.yaml", "evalset.yml", "evals/*.json", "evals/*.yaml", "evals/*.yml",
		"evaluations/eval-sets/*.json",
	} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is well formed
		for _, file := range found {
			set, problems, err := evalset.Load(file)
			if err != nil || problems.Err(false) != nil || len(set.Evaluations)+len(set.Tasks) == 0 && set.DatasetNode == nil {
				continue
			}
			if name, err := filepath.Rel(dir, file); err == nil {
				sets, own = append(sets, filepath.ToSlash(name)), own || len(set.Agents) > 0
			}
		}
	}
	return sets, own
}

// taskDirs returns the pattern of task directories, as an eval set in evals/ names them; empty if
// there are none.
func taskDirs(dir string) string {
	for _, pattern := range []string{"tasks/*", "evals/*", "*"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is well formed
		if slices.ContainsFunc(found, tasks.IsDir) {
			return `"../` + pattern + `"`
		}
	}
	return ""
}

// python returns the interpreter of the project.
func python(dir string) string {
	if name := ".venv/bin/python"; is(dir, name) {
		return name
	}
	return "python3"
}

// programOf returns the program that runs the project's agent, or why there is none.
func programOf(dir, template string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err.Error()
	}
	find := pyagent.Interpreter
	if template == nodeagent.Name {
		find = nodeagent.Program
	}
	path, bad := find(dir)
	if bad != nil {
		return bad.Message
	}
	if name, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(name) {
		return name
	}
	return path
}

// questions are what the first evaluations ask, and where the answer is.
func (p *Project) questions(dir string) (replace []string) {
	for word, text := range map[string]string{
		"__GREETING__": "Hello", "__ABILITIES__": "What can you help me with?", "__NONSENSE__": "asdf ?!",
	} {
		replace = append(replace, word, p.inputs(dir, text))
	}
	path := "path: result, "
	if p.Template == pyagent.UiPath || p.Template == nodeagent.Name { // what functions return has no such member
		path = ""
	}
	return append(replace, "__PATH__", path)
}

// inputs returns the inputs that ask something. Those of UiPath's entry points have the members that
// entry-points.json requires.
func (p *Project) inputs(dir, text string) string {
	given := map[string]any{"input": text}
	if p.Template == pyagent.UiPath {
		given = map[string]any{}
		for name, kind := range pyagent.Required(dir, p.Entrypoint) {
			switch kind {
			case "string":
				given[name] = text
			case "number", "integer":
				given[name] = 1
			case "boolean":
				given[name] = true
			case "array":
				given[name] = []any{}
			default:
				given[name] = map[string]any{}
			}
		}
		if len(given) == 0 {
			given["text"] = text
		}
	}
	data, _ := json.Marshal(given) // it has nothing that JSON cannot
	return string(data)
}

// entrypoint returns the first of the agents that the project's file names, or that of a module. It
// is empty if there is neither.
func entrypoint(dir, template string) string {
	if names := pyagent.Entrypoints(dir, template); len(names) > 0 {
		return names[0]
	}
	if template == nodeagent.Name {
		if place, ok := nodeagent.FindModule(dir); ok {
			return place
		}
		return ""
	}
	if found, ok := pyagent.FindModule(dir); ok && found.Type == template {
		return found.Entrypoint
	}
	if is(dir, pyagent.FileOf(template)) { // what it says is for its own framework to understand
		return "main"
	}
	return ""
}

// Write writes the project into a folder, which it makes if need be. If one of its files exists
// already it writes nothing.
func (p *Project) Write(dir string) error {
	var there []string
	for _, name := range p.Files {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			there = append(there, filepath.Join(dir, name))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("%w; there already: %s; give another folder", ErrThere, strings.Join(there, ", "))
	}
	for _, name := range p.Files {
		if err := p.write(name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// agentFile is the agent for eval sets that have none.
const agentFile = `{"type": "__TEMPLATE__", "entrypoint": "__ENTRYPOINT__", "cwd": ".."}
`

// write writes a file. It does not overwrite a file that was made in between.
func (p *Project) write(name, to string) error {
	text := agentFile
	if name != "evals/agent.json" {
		data, err := p.read(path.Base(name))
		if err != nil {
			return err
		}
		text = string(data)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.NewReplacer(p.replace...).Replace(text))
	return errors.Join(err, f.Close())
}

// read returns the text of a file: the template's own, else the one that all templates share, else
// that of the first template.
func (p *Project) read(name string) (data []byte, err error) {
	for _, folder := range []string{p.folder(), "common", "first"} {
		if data, err = fs.ReadFile(templates, path.Join("templates", folder, name)); err == nil {
			return data, nil
		}
	}
	return nil, err
}

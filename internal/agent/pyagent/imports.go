package pyagent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
)

// Module is an agent that a file of Python makes.
type Module struct {
	// Type is the type of agents of the framework, and Entrypoint is FILE.py:NAME.
	Type, Entrypoint string
}

// libraries says how files that make agents of frameworks look. A file that makes one imports its
// framework and has an assignment at its top.
var libraries = []struct {
	kind    string
	imports *regexp.Regexp
	// made are the names of what returns an agent.
	made string
}{
	{OpenAIAgents, regexp.MustCompile(`(?m)^(?:from|import) agents\b`), `Agent`},
	{PydanticAI, regexp.MustCompile(`(?m)^(?:from|import) pydantic_ai\b`), `Agent`},
	{GoogleADK, regexp.MustCompile(`(?m)^(?:from|import) google\.adk\b`), `(?:Llm|Base|Sequential|Parallel|Loop)?Agent|App`},
	{LlamaIndex, regexp.MustCompile(`(?m)^(?:from|import) (?:workflows|llama_index)\b`), `AgentWorkflow|FunctionAgent|ReActAgent`},
	{LangGraph, regexp.MustCompile(`(?m)^(?:from|import) langgraph\b`), `compile|create_react_agent`},
}

// workflowClass matches a class of workflows.
var workflowClass = regexp.MustCompile(`(?m)^class ([A-Za-z_]\w*)\((?:\w+\.)*Workflow\)`)

// assigned matches an assignment of what a function or class of these names returns.
func assigned(names string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^([A-Za-z_]\w*)[ \t]*(?::[^=\n]+)?=[ \t]*(?:\w+(?:\([^()\n]*\))?\.)*(?:` + names + `)(?:\[[^\n]*?\])?\(`)
}

// agentsIn returns the agents of frameworks that a file makes: their type, and their names in the
// order in which they are made.
func agentsIn(path string) (kind string, names []string) {
	data, err := input.ReadFile(path, input.MaxFile)
	if err != nil {
		return "", nil // it cannot be run either
	}
	text := string(data)
	for _, l := range libraries {
		if !l.imports.MatchString(text) || l.kind == OpenAIAgents && hasOwnAgents(filepath.Dir(path)) {
			continue
		}
		made := l.made
		if l.kind == LlamaIndex {
			for _, m := range workflowClass.FindAllStringSubmatch(text, -1) {
				made += "|" + m[1]
			}
		}
		for _, m := range assigned(made).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		if names != nil {
			return l.kind, names
		}
	}
	return "", nil
}

// defined matches what a file defines at its top and can be called.
var defined = regexp.MustCompile(`(?m)^(?:async[ \t]+def|def|class)[ \t]+([A-Za-z]\w*)`)

// indirect matches what may give a module a name that its file does not have.
var indirect = regexp.MustCompile(`import[\s\\]*\*|globals|locals|vars|exec|eval|setattr|modules|__getattr__|__dict__`)

// absent says that there is no file of an entry point FILE.py:NAME, or that the first part of NAME is
// nowhere in it. Everything else only Python itself can tell.
func absent(e agent.Entry, dir string) error {
	place, name, _ := strings.Cut(e.Settings.(*Settings).Entrypoint, ":")
	if name == "" || !strings.HasSuffix(place, ".py") {
		return nil
	}
	path := place
	if !filepath.IsAbs(path) {
		folder, _ := e.Program(dir)
		path = filepath.Join(folder, path)
	}
	data, err := input.ReadFile(path, input.MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no file %s%s", path, input.NearFile(path))
	}
	first, _, _ := strings.Cut(name, ".")
	if err != nil || strings.HasPrefix(first, "__") || indirect.Match(data) ||
		regexp.MustCompile(`\b`+first+`\b`).Match(data) {
		return nil
	}
	var names []string
	for _, m := range defined.FindAllSubmatch(data, -1) {
		names = append(names, string(m[1]))
	}
	if names == nil {
		return fmt.Errorf("%s has no %q", place, name)
	}
	return fmt.Errorf("%s has no %q%s; it has %s", place, name, input.Suggest(name, names), strings.Join(names, ", "))
}

// hasOwnAgents reports whether a package called agents is the project's own, and not OpenAI's.
func hasOwnAgents(dir string) bool {
	for range 2 {
		for _, name := range []string{"agents.py", "agents"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return true
			}
		}
		dir = filepath.Dir(dir)
	}
	return false
}

// The most that FindModule reads: files, and folders in one another.
const (
	maxModules     = 500
	maxModuleDepth = 4
)

// usual are the names that the agent of a project usually has.
var usual = []string{"agent", "root_agent", "graph", "workflow", "app"}

// FindModule looks for the agent of a framework that the files of a project make. Of several it takes
// one with a usual name, else the last of a file, which may use the others; files near the top come
// first. It returns false if there is none.
func FindModule(dir string) (Module, bool) {
	type candidate struct {
		Module
		unusual, depth int
	}
	var all []candidate
	files := 0
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what cannot be read has none
		name, _ := filepath.Rel(dir, path)
		depth := strings.Count(name, string(filepath.Separator))
		switch {
		case err != nil || files > maxModules:
			return filepath.SkipDir
		case d.IsDir() && path != dir && (depth >= maxModuleDepth || notOfProject(path, d.Name())):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".py" || strings.HasPrefix(d.Name(), "test_"):
			return nil
		}
		files++
		kind, names := agentsIn(path)
		if names == nil {
			return nil
		}
		best := names[len(names)-1]
		for _, one := range usual {
			if slices.Contains(names, one) {
				best = one
				break
			}
		}
		unusual := slices.Index(usual, best)
		if unusual < 0 {
			unusual = len(usual)
		}
		all = append(all, candidate{Module{kind, filepath.ToSlash(name) + ":" + best}, unusual, depth})
		return nil
	})
	if len(all) == 0 {
		return Module{}, false
	}
	return slices.MinFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.unusual, b.unusual), cmp.Compare(a.Entrypoint, b.Entrypoint))
	}).Module, true
}

// notOfProject reports whether a folder holds something else than the project's own modules.
func notOfProject(path, name string) bool {
	if strings.HasPrefix(name, ".") || slices.Contains([]string{"node_modules", "tests", "test", "venv", "site-packages"}, name) {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "pyvenv.cfg"))
	return err == nil
}

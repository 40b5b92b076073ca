package pyagent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/redact"
)

// projectFiles are the files that name the agents of a project. Where there are several, the first
// decides: a project of UiPath with a framework has both.
var projectFiles = []struct{ name, kind string }{
	{"langgraph.json", LangGraph}, {"openai_agents.json", OpenAIAgents}, {"pydantic_ai.json", PydanticAI},
	{"llama_index.json", LlamaIndex}, {"google_adk.json", GoogleADK}, {"uipath.json", UiPath},
}

// FileOf returns the file that names the agents of a type.
func FileOf(kind string) string {
	for _, file := range projectFiles {
		if file.kind == kind {
			return file.name
		}
	}
	return ""
}

// project is what evalrun itself reads of such a file.
type project struct {
	Graphs    map[string]json.RawMessage `json:"graphs"`
	Functions map[string]json.RawMessage `json:"functions"`
	Agents    map[string]json.RawMessage `json:"agents"`
	Workflows map[string]json.RawMessage `json:"workflows"`
	// Env is the path of a file with variables, or an object.
	Env json.RawMessage `json:"env"`
}

func readProject(path string) (p project, err error) {
	data, err := input.ReadFile(path, input.MaxFile)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// entrypoints lists the names of a project's agents.
func (p project) entrypoints(kind string) []string {
	all := map[string]json.RawMessage{}
	switch kind {
	case LangGraph:
		maps.Copy(all, p.Graphs)
	case LlamaIndex:
		maps.Copy(all, p.Workflows)
	case UiPath:
		maps.Copy(all, p.Functions)
		maps.Copy(all, p.Agents)
	default:
		maps.Copy(all, p.Agents)
	}
	return slices.Sorted(maps.Keys(all))
}

// Entrypoints lists the agents of a type that a project's file names; none if it cannot be read.
func Entrypoints(dir, kind string) []string {
	p, err := readProject(filepath.Join(dir, FileOf(kind)))
	if err != nil {
		return nil
	}
	return p.entrypoints(kind)
}

// inProject returns the agent that the files of a folder name; false if they name none.
func inProject(dir string) (agent.Entry, bool, error) {
	for _, file := range projectFiles {
		path := filepath.Join(dir, file.name)
		if _, err := os.Stat(path); err == nil {
			e, err := ofProject(path, file.kind, "")
			return e, err == nil, err
		}
	}
	return agent.Entry{}, false, nil
}

// Graphs returns where the graphs of a langgraph.json are, by their names; none if it cannot be read.
func Graphs(path string) map[string]string {
	p, err := readProject(path)
	if err != nil {
		return nil
	}
	places := map[string]string{}
	for name, value := range p.Graphs {
		var at string
		var described struct {
			Path string `json:"path"`
		}
		if json.Unmarshal(value, &at) != nil && json.Unmarshal(value, &described) == nil {
			at = described.Path
		}
		places[name] = at
	}
	return places
}

// Required returns the members that the input of an entry point of UiPath must have, with their types, as
// entry-points.json says; none if it does not.
func Required(dir, entrypoint string) map[string]string {
	var file struct {
		EntryPoints []struct {
			FilePath string `json:"filePath"`
			Input    struct {
				Properties map[string]struct {
					Type string `json:"type"`
				} `json:"properties"`
				Required []string `json:"required"`
			} `json:"input"`
		} `json:"entryPoints"`
	}
	data, err := input.ReadFile(filepath.Join(dir, "entry-points.json"), input.MaxFile)
	if err != nil || json.Unmarshal(data, &file) != nil {
		return nil
	}
	members := map[string]string{}
	for _, one := range file.EntryPoints {
		for _, name := range one.Input.Required {
			if one.FilePath == entrypoint {
				members[name] = one.Input.Properties[name].Type
			}
		}
	}
	return members
}

// ofProject returns one of the agents that a file names; the only one if no name is given.
func ofProject(path, kind, name string) (agent.Entry, error) {
	p, err := readProject(path)
	if err != nil {
		return agent.Entry{}, err
	}
	names := p.entrypoints(kind)
	switch {
	case len(names) == 0:
		return agent.Entry{}, fmt.Errorf("%s names no agent", path)
	case name == "" && len(names) > 1:
		return agent.Entry{}, fmt.Errorf("%s names several agents: choose one with --agent %s:NAME, of %s", path,
			path, strings.Join(names, ", "))
	case name == "":
		name = names[0]
	case !slices.Contains(names, name):
		return agent.Entry{}, fmt.Errorf("%s names no agent %q%s; it names %s", path, name, input.Suggest(name, names),
			strings.Join(names, ", "))
	}
	return entry(kind, name, filepath.Dir(path)), nil
}

// named returns the agent that a word on the command line stands for: FILE.py:NAME, module:NAME, or
// a file that names a project's agents, such as langgraph.json, with or without :NAME. It returns false if the word is none of
// these. Relative paths are those of the process.
func named(word string) (agent.Entry, bool, error) {
	path, name, _ := strings.Cut(word, ":")
	for _, file := range projectFiles {
		if filepath.Base(path) == file.name {
			e, err := ofProject(path, file.kind, name)
			if errors.Is(err, fs.ErrNotExist) {
				err = input.Unreadable(path, err)
			}
			return e, true, err
		}
	}
	if !place.MatchString(word) {
		return agent.Entry{}, false, nil
	}
	if _, err := os.Stat(path); err != nil && strings.HasSuffix(path, ".py") {
		return agent.Entry{}, true, fmt.Errorf("%w%s", input.Unreadable(path, err), input.NearFile(path))
	}
	kind, names := agentsIn(path)
	if !slices.Contains(names, name) {
		kind = Python
	}
	return entry(kind, word, "."), true, nil
}

// Variables are those of the project's own file of variables, for agents of a type, as NAME=VALUE. What
// cannot be read has none: the program may not need them.
func Variables(dir, kind string) []string {
	path := ".env"
	switch kind {
	case Python:
		return nil
	case LangGraph:
		p, err := readProject(filepath.Join(dir, "langgraph.json"))
		given := map[string]string{}
		if err != nil || len(p.Env) == 0 {
			return nil
		} else if json.Unmarshal(p.Env, &given) == nil {
			return environ(given)
		} else if json.Unmarshal(p.Env, &path) != nil {
			return nil
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, path))
	if err != nil {
		return nil
	}
	return environ(parseVariables(string(data)))
}

// assignment matches NAME=VALUE, with a value in quotes, which may have several lines, or without.
var assignment = regexp.MustCompile(
	`(?ms)^[ \t]*(?:export[ \t]+)?([^\s=#'"]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\r\n]*))`)

// The escapes in values with double and single quotes.
var (
	inDouble = strings.NewReplacer(`\\`, `\`, `\'`, `'`, `\"`, `"`, `\n`, "\n", `\r`, "\r", `\t`, "\t",
		`\a`, "\a", `\b`, "\b", `\f`, "\f", `\v`, "\v")
	inSingle = strings.NewReplacer(`\\`, `\`, `\'`, `'`)
)

// parseVariables reads a file of variables as python-dotenv does, by which such projects load theirs:
// one that is in the environment already is not read again by the agent. ${NAME} stands for a variable
// of the environment, else for one above.
func parseVariables(text string) map[string]string {
	found := map[string]string{}
	names := agent.Options{Resolve: func(name string) (string, bool) {
		if value, ok := os.LookupEnv(name); ok {
			return value, true
		}
		value, ok := found[name]
		return value, ok
	}}
	for _, m := range assignment.FindAllStringSubmatch(text, -1) {
		value := m[4]
		if i := strings.Index(value, " #"); i >= 0 {
			value = value[:i]
		}
		value = strings.TrimSpace(value) + inDouble.Replace(m[2]) + inSingle.Replace(m[3]) // only one is there
		found[m[1]], _ = names.Expand(value)
	}
	return found
}

// secrets are the variables of the project's own file that look like secrets.
func secrets(e agent.Entry, dir string) map[string]string {
	if !filepath.IsAbs(e.Cwd) {
		dir = filepath.Join(dir, e.Cwd)
	} else {
		dir = e.Cwd
	}
	return redact.FromEnviron(Variables(dir, e.Type), nil)
}

func environ(all map[string]string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, name+"="+all[name])
	}
	return out
}

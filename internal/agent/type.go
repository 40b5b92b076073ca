package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// Type is a kind of agent: what its entries say, what its rollouts need, and how an agent is made
// from an entry. Its package describes it, and package agent/types registers it. If a field is nil,
// entries of the type have nothing of that.
type Type struct {
	// Name is the "type" of its entries.
	Name  string
	Needs Needs
	// NeedsOf replaces Needs if those depend on the entry.
	NeedsOf func(e Entry) Needs
	// GoesOn returns the folder of the attempt with which another one goes on, in the folders as that
	// has left them; empty if the segment begins anew. It gets the folders of the attempts of a
	// segment that were broken off or have failed, the newest first.
	GoesOn func(dirs []string) string
	// Parse reads an entry without its type. Problems are recorded in r. It is nil for entries that
	// have only a name.
	Parse func(r *input.Reader, f *input.Fields) Entry
	// Settings makes a pointer to the settings that only entries of this type have. A stored entry
	// is decoded into it.
	Settings func() any
	// Expand makes several entries of one, as it stands in a document; nil if each is one.
	Expand func(n *input.Node) []*input.Node
	// Lacks names what an entry needs of the inputs of an evaluation and they do not have.
	Lacks func(e Entry, inputs json.RawMessage) string
	// Sends names the files of the eval set's folder dir that an entry sends with the inputs of an
	// evaluation. The error says why it cannot.
	Sends func(e Entry, inputs json.RawMessage, dir string) ([]string, error)
	// Check says why no agent can be made from an entry.
	Check func(e Entry) error
	// Absent says that something which an entry names is not there, as far as that can be seen without
	// running a program of the agent. The entry's cwd is relative to dir.
	Absent func(e Entry, dir string) error
	// New makes an agent from an entry that has passed Check.
	New func(e Entry, o Options) Agent

	// Named are entries that eval sets and the command line may call by a name. Each is made anew, so
	// that nobody changes another's.
	Named map[string]func() Entry
	// Install returns how a program of these entries is installed, and what else it needs. It is
	// empty if that is not known.
	Install func(program string) string
	// Credentials reports whether an entry may have credentials for its model that base, an entry of
	// Named, does not have.
	Credentials func(e, base Entry) bool
	// Skills returns the folder in the agent's home where it finds skills.
	Skills func(e Entry) string
	// Secrets returns the secrets of an entry that are neither in it nor in the environment, such as
	// those in a file of the agent's project. The entry's cwd is relative to dir.
	Secrets func(e Entry, dir string) map[string]string
	// Texts returns the texts of an entry that may hold ${VAR}, beside those that all entries have.
	Texts func(e Entry) []string
	// InProject returns the agent that the files of a project's folder name, and OfWord the one that a word
	// on the command line stands for, such as FILE.py:NAME. They return false if it is none of the type.
	InProject func(dir string) (Entry, bool, error)
	OfWord    func(word string) (Entry, bool, error)
	// AsksPeople reports whether a person answers what MCP servers ask the agent.
	AsksPeople func(e Entry) bool
	// Content says on what the output of an agent depends beside its entry and the input.
	Content Content
}

// Content is on what the output of an agent depends, as far as it can be seen from here.
type Content int

// The contents of agents.
const (
	ContentUnseen Content = iota // on a service, or on a program that works in a sandbox
	ContentEntry                 // on nothing else
	ContentFolder                // on the files of the entry's folder, and those that its command names
)

// Needs lists what the agents of a type need to run. They are given no more than that.
type Needs struct {
	// Sandbox is the sandbox of the rollout. Agents that need none run as their owner's own
	// program, and not in the environment of a task.
	Sandbox bool
	// Home is a home folder that is kept from segment to segment, also over an image.
	Home bool
	// Env are the variables that were passed to the run.
	Env bool
	// Models is the model proxy, and Gateway the MCP gateway.
	Models  bool
	Gateway bool
	// Task says that the evaluation must have a task, since others give these agents nothing to do.
	// Solution is the task's own solution.
	Task     bool
	Solution bool
	// Mockable are the functions of the agent that are to be played.
	Mockable bool
}

// types holds the registered types, in the order in which messages name them.
var types []Type

// Register registers types. It must be called before entries are read, and not concurrently.
func Register(known ...Type) { types = append(types, known...) }

// Types returns the registered types.
func Types() []Type { return slices.Clone(types) }

// typeOf returns the registered type of an entry; the zero Type if there is none.
func (e Entry) typeOf() Type {
	if i := slices.IndexFunc(types, func(t Type) bool { return t.Name == e.Type }); i >= 0 {
		return types[i]
	}
	return Type{}
}

func typeNames() (names []string) {
	for _, t := range types {
		names = append(names, t.Name)
	}
	return names
}

// Names returns the names of the registry's entries, sorted.
func Names() (names []string) {
	for _, t := range types {
		names = slices.AppendSeq(names, maps.Keys(t.Named))
	}
	slices.Sort(names)
	return names
}

// Registered returns the registry's entry with a name.
func Registered(name string) (Entry, bool) {
	for _, t := range types {
		if named, ok := t.Named[name]; ok {
			e := named()
			e.Name, e.Type = name, t.Name
			return e, true
		}
	}
	return Entry{}, false
}

// Discover looks for the agent of the project to which a folder belongs: in the folder and in those
// above it, up to the first with a file that names agents, or that is a repository's. It returns
// false if there is none.
func Discover(dir string) (Entry, bool, error) {
	for {
		for _, t := range types {
			if t.InProject == nil {
				continue
			}
			if e, ok, err := t.InProject(dir); ok || err != nil {
				return e, ok, err
			}
		}
		_, err := os.Stat(filepath.Join(dir, ".git"))
		above := filepath.Dir(dir)
		if err == nil || above == dir {
			return Entry{}, false, nil
		}
		dir = above
	}
}

// OfWord returns the agent that a word on the command line stands for, such as FILE.py:NAME; false if
// it stands for none. Relative paths are those of the process.
func OfWord(word string) (Entry, bool, error) {
	for _, t := range types {
		if t.OfWord == nil {
			continue
		}
		if e, ok, err := t.OfWord(word); ok || err != nil {
			return e, ok, err
		}
	}
	return Entry{}, false, nil
}

// HowToInstall returns the command that installs a program of an agent of the registry, and what it
// needs. It is empty if none is known.
func HowToInstall(program string) (command string) {
	for _, t := range types {
		if t.Install != nil {
			command = cmp.Or(command, t.Install(program))
		}
	}
	return command
}

// Needs returns what the agent needs to run.
func (e Entry) Needs() Needs {
	t := e.typeOf()
	if t.NeedsOf != nil {
		return t.NeedsOf(e)
	}
	return t.Needs
}

// GoesOn returns the folder of the attempt with which another one goes on; empty if the segment
// begins anew.
func (e Entry) GoesOn(dirs []string) string {
	if goesOn := e.typeOf().GoesOn; goesOn != nil {
		return goesOn(dirs)
	}
	return ""
}

// Check says why no agent can be made from the entry.
func (e Entry) Check() error {
	t := e.typeOf()
	switch {
	case t.Name == "":
		return fmt.Errorf("agent %q: type %q is not supported by this version; supported: %s",
			e.Name, e.Type, strings.Join(typeNames(), ", "))
	case t.Check != nil:
		return t.Check(e)
	}
	return nil
}

// Absent says that something which the entry names is not there; nil also if only a start can tell. Its
// cwd is relative to dir.
func (e Entry) Absent(dir string) error {
	if absent := e.typeOf().Absent; absent != nil {
		return absent(e, dir)
	}
	return nil
}

// Expand makes several entries of one, as it stands in a document, if its type has such.
func Expand(n *input.Node) []*input.Node {
	if kind := n.Member("type"); kind != nil {
		if t := (Entry{Type: kind.Text}).typeOf(); t.Expand != nil {
			return t.Expand(n)
		}
	}
	return []*input.Node{n}
}

// Lacks names what the entry needs of the inputs of an evaluation and they do not have; empty if
// they have all.
func (e Entry) Lacks(inputs json.RawMessage) string {
	if lacks := e.typeOf().Lacks; lacks != nil {
		return lacks(e, inputs)
	}
	return ""
}

// Sends names the files of the eval set's folder dir that the entry sends with the inputs of an
// evaluation, if it sends any. The error says why it cannot.
func (e Entry) Sends(inputs json.RawMessage, dir string) ([]string, error) {
	if sends := e.typeOf().Sends; sends != nil {
		return sends(e, inputs, dir)
	}
	return nil, nil
}

// New makes an agent from the entry.
func (e Entry) New(o Options) (Agent, error) {
	if err := e.Check(); err != nil {
		return nil, err
	}
	return e.typeOf().New(e, o), nil
}

// Skills returns the folder in the agent's home where it finds skills; empty if it reads none.
func (e Entry) Skills() string {
	if skills := e.typeOf().Skills; skills != nil {
		return skills(e)
	}
	return ""
}

// AsksPeople reports whether a person answers what MCP servers ask the agent.
func (e Entry) AsksPeople() bool {
	asks := e.typeOf().AsksPeople
	return asks != nil && asks(e)
}

// Content says on what the output of the agent depends beside the entry and the input.
func (e Entry) Content() Content {
	if e.Needs().Sandbox {
		return ContentUnseen
	}
	return e.typeOf().Content
}

// Program returns the folder of the agent's program, and the files beside it that its command names. An
// entry's cwd is relative to dir.
func (e Entry) Program(dir string) (folder string, files []string) {
	folder = filepath.FromSlash(e.Cwd)
	if !filepath.IsAbs(folder) {
		folder = filepath.Join(dir, folder)
	}
	for i, word := range e.Command {
		path := filepath.FromSlash(word)
		if found, err := exec.LookPath(word); i == 0 && filepath.Base(path) == path && err == nil {
			path = found
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			files = append(files, path)
		}
	}
	return folder, files
}

// Secrets returns the secrets of the entry that are neither in it nor in the environment. Its cwd is
// relative to dir.
func (e Entry) Secrets(dir string) map[string]string {
	if secrets := e.typeOf().Secrets; secrets != nil {
		return secrets(e, dir)
	}
	return nil
}

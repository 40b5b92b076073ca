package nodeagent

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

var (
	// imports matches the import of a library whose agents are run as they are, or of our own types.
	imports = regexp.MustCompile(`(?m)from\s+["'](?:@langchain/langgraph(?:/[\w/]+)?|langchain|ai|evalrun)["']`)
	// exported matches an exported constant with what it is made of, and takesContext a function that gets what
	// has arrived.
	exported     = regexp.MustCompile(`(?ms)^export const (\w+)[^=\n]*=\s*(.*?);[ \t]*$`)
	takesContext = regexp.MustCompile(`(?m)^export (?:async )?function (\w+)\([^)]*\bContext\b[^)]*\)`)
	// makes matches what makes an agent.
	makes = regexp.MustCompile(`\.compile\(|\bcreateAgent\(|\bcreateReactAgent\(|\bnew (?:ToolLoopAgent|Experimental_Agent|Agent)\(`)
)

// The most that FindModule reads: files, and folders in one another.
const (
	maxModules     = 500
	maxModuleDepth = 4
)

// usual are the names that the agent of a project usually has.
var usual = []string{"agent", "graph", "workflow", "app", "main"}

// FindModule looks for the agent that the files of a project in TypeScript or JavaScript export, as
// FILE.ts:NAME. Files near the top and usual names come first. It returns false if there is none.
func FindModule(dir string) (string, bool) {
	type candidate struct {
		place          string
		depth, unusual int
	}
	var all []candidate
	files := 0
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what cannot be read has none
		if err != nil || files > maxModules {
			return filepath.SkipDir
		}
		name, _ := filepath.Rel(dir, path)
		depth := strings.Count(name, string(filepath.Separator))
		leave := strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"node_modules", "dist", "build", "test", "tests"}, d.Name())
		switch {
		case d.IsDir() && path != dir && (depth >= maxModuleDepth || leave):
			return filepath.SkipDir
		case d.IsDir() || !place.MatchString(name+":main") || strings.Contains(d.Name(), ".test."):
			return nil
		}
		files++
		for _, one := range exports(path) {
			unusual := slices.Index(usual, one)
			if unusual < 0 {
				unusual = len(usual)
			}
			all = append(all, candidate{filepath.ToSlash(name) + ":" + one, depth, unusual})
		}
		return nil
	})
	if _, err := os.Stat(filepath.Join(dir, "package.json")); err != nil || len(all) == 0 {
		return "", false
	}
	return slices.MinFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.unusual, b.unusual), cmp.Compare(a.place, b.place))
	}).place, true
}

// exports lists the agents that a file exports.
func exports(path string) (names []string) {
	data, err := input.ReadFile(path, input.MaxFile)
	if err != nil || !imports.Match(data) {
		return nil
	}
	for _, m := range exported.FindAllSubmatch(data, -1) {
		if makes.Match(m[2]) {
			names = append(names, string(m[1]))
		}
	}
	for _, m := range takesContext.FindAllSubmatch(data, -1) {
		names = append(names, string(m[1]))
	}
	return names
}

package main

import (
	"cmp"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// The linker sets these variables in a release (-ldflags "-X main.version=…"). If they are empty,
// the values that the Go tool has recorded are used.
var version, commit, date string

// build identifies this program. Its JSON is what evalrun version --json prints.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`
	Go      string `json:"go"`
}

func buildInfo() build {
	b := build{Version: version, Commit: commit, Date: date}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(b.Version, "unknown")
		return b
	}
	b.Go = info.GoVersion
	if info.Main.Version != "(devel)" {
		b.Version = cmp.Or(b.Version, info.Main.Version)
	}
	b.Version = cmp.Or(b.Version, "devel")
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, s.Value)
		case "vcs.time":
			b.Date = cmp.Or(b.Date, s.Value)
		}
	}
	return b
}

// line is the version that plans record and agents receive.
func (b build) line() string {
	if b.Go == "" {
		return b.Version
	}
	return b.Version + " " + b.Go
}

func versionCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, date and Go version of this program",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := buildInfo()
			if g.json {
				return printJSON(cmd, b)
			}
			printf(stdout(cmd), "evalrun %s\n", b.Version)
			for _, line := range [][2]string{{"commit", b.Commit}, {"date", b.Date}, {"go", b.Go}} {
				if line[1] != "" {
					printf(stdout(cmd), "%s %s\n", line[0], line[1])
				}
			}
			return nil
		},
	}
}

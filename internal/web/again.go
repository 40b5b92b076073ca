package web

import (
	"context"
	"strings"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/service"
)

// again is how a run, or an evaluation of it, is run once more.
type again struct {
	service.Origin
	Commit string
	// Command is given in that folder.
	Command string
}

// Lines are what one types, from the root of the checkout or from the folder that has the store.
func (a again) Lines() string {
	if a.Folder == "" || a.Folder == "." {
		return a.Command
	}
	folder := a.Folder
	if strings.HasPrefix(folder, "-") {
		folder = "./" + folder
	}
	return "cd " + report.ShellWords([]string{folder}) + "\n" + a.Command
}

// again says how what a command has made is made once more; nil if the run was not started by one.
func (p *site) again(ctx context.Context, o *overview, command string) (*again, error) {
	if command == "" {
		return nil, nil
	}
	origin, err := p.origins.of(o.head.RunID, func() (service.Origin, error) { return p.o.Service.Origin(ctx, o.head.RunID) })
	if err != nil {
		return nil, err
	}
	return &again{origin, o.head.GitCommit, command}, nil
}

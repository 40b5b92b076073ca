package web

import (
	"context"
	"strings"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/service"
)

// again says how to run a run, or an evaluation of it, once more.
type again struct {
	service.Origin
	Commit string
	// Command is run in that folder.
	Command string
}

// Lines are the lines to type, from the root of the checkout or from the folder that has the store.
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

// again says how to make the result of a command once more. It is nil if no command started the
// run.
func (p *site) again(ctx context.Context, o *overview, command string) (*again, error) {
	if command == "" {
		return nil, nil
	}
	origin, err := p.origins.of(o.head.RunID, func() (service.Origin, error) {
		return p.o.Service.Origin(ctx, o.head.RunID)
	})
	if err != nil {
		return nil, err
	}
	return &again{origin, o.head.GitCommit, command}, nil
}

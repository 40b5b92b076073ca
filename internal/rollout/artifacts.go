package rollout

import (
	"context"
	"os"
	"path"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/tasks"
)

// keepArtifacts copies the task's artifacts and the content of /logs/artifacts out of the sandbox,
// and redacts them. The notes name the artifacts that are missing or were left out.
func (v *verifier) keepArtifacts(stage *tasks.Stage, to string) (notes []string, err error) {
	err = v.spec.eachArtifact(stage, func(a tasks.Artifact, below, rel string) error {
		destination := a.Destination
		if destination == "" {
			destination = path.Clean("/" + a.Source)[1:]
		}
		x := workspace.NewCopyOut(a.Exclude, v.held.run.filter())
		if below != "" {
			if err := x.Copy(below, rel, filepath.Join(to, filepath.FromSlash(destination))); err != nil {
				return err
			}
		}
		switch {
		case below == "":
			x.Note(".", "missing; without isolation, only what is in the folders of the rollout is kept")
		case !x.Found && a.Source != everyArtifacts.Source: // every task has that one, and need not use it
			x.Note(".", "missing; nothing was left at this path")
		}
		for _, note := range x.Notes {
			notes = append(notes, "artifact "+a.Source+": "+note)
		}
		return nil
	})
	return notes, err
}

// everyArtifacts is the folder whose content every task has among its artifacts.
var everyArtifacts = tasks.Artifact{Source: workspace.InsideLogs + "/artifacts", Destination: "."}

// eachArtifact calls f for every artifact, with the folder of this machine that holds it. The
// folder is empty if there is none.
func (s *sandboxSpec) eachArtifact(stage *tasks.Stage, f func(a tasks.Artifact, below, rel string) error) error {
	space, err := s.config(stage.Agent.Network, "")
	if err != nil {
		return err
	}
	for _, a := range append([]tasks.Artifact{everyArtifacts}, stage.Artifacts...) {
		below, rel := workspace.BindOf(space.Binds, s.absolute(a.Source))
		done := func() {}
		if below == "" && s.image != nil {
			if below, rel, done, err = s.at(s.absolute(a.Source)); err != nil {
				return err
			}
		}
		err := f(a, below, rel)
		done()
		if err != nil {
			return err
		}
	}
	return nil
}

// absolute returns the absolute form of an inside path, which may be relative to the working
// directory.
func (s *sandboxSpec) absolute(inside string) string {
	if path.IsAbs(inside) {
		return inside
	}
	return path.Join(s.folders.Workdir, inside)
}

// separate makes a sandbox for the verifier alone. It has the task's files as they were before the
// agent ran, or the image of the tests, and the artifacts where the agent left them.
func (v *verifier) separate(ctx context.Context, stage *tasks.Stage) (*sandboxSpec, error) {
	s := v.spec
	own := *s
	own.compose, own.services = nil, nil // the sandbox has an environment of its own
	own.folders.Link = ""
	own.folders.Root = filepath.Join(s.folders.Root, "separate")
	if err := workspace.Remove(own.folders.Root); err != nil {
		return nil, err
	}
	if s.image != nil {
		if err := (rolloutImages{v.held}).openSeparate(ctx, &own, stage); err != nil {
			return nil, err
		}
	}
	if s.remote != nil {
		if err := own.newRemote(ctx, "/tests", ""); err != nil {
			return nil, err
		}
		own.own = true
	}
	if err := own.collected(s, stage); err != nil {
		own.release()
		return nil, err
	}
	return &own, nil
}

// collected begins the verifier's own sandbox with the artifacts of the agent's.
func (s *sandboxSpec) collected(from *sandboxSpec, stage *tasks.Stage) error {
	if err := s.populate(); err != nil {
		return err
	}
	// The artifacts are copied through a folder in which nobody can have left links.
	between := filepath.Join(s.folders.Root, "artifacts")
	return from.eachArtifact(stage, func(a tasks.Artifact, below, rel string) error {
		if below == "" {
			return nil
		}
		if err := workspace.Remove(between); err != nil {
			return err
		}
		// Its notes were made already when the artifacts were kept.
		if err := workspace.NewCopyOut(a.Exclude, nil).Copy(below, rel, between); err != nil {
			return err
		}
		if _, err := os.Lstat(between); err != nil {
			return nil //nolint:nilerr // there is no such artifact
		}
		if err := s.copyIn(between, from.absolute(a.Source)); !workspace.IsBadName(err) {
			return err
		}
		return nil // another artifact takes its place, and the tests will miss it
	})
}

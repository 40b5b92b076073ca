package rollout

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// held is a claim with the plan's data of the claimed rollout. Nothing in it but services changes
// after load.
type held struct {
	host  *Host
	claim store.Claim
	// claimed is when the rollout was claimed.
	claimed    time.Time
	run        *Run
	evaluation eval.Evaluation
	entry      agent.Entry
	// goesOnFrom is the folder of the attempt with which this one goes on; empty if the segment begins
	// anew.
	goesOnFrom string
	// services are the services beside the containers of the rollout; nil while there are none.
	services services
	// remote is the rollout's container in a Docker daemon; nil while there is none.
	remote *container.Remote
	// kept says where the files of the rollout are.
	kept store.Kept
	// rescoring is the number of the rescoring that scores the rollout again; 0 if none does.
	rescoring int
}

// load loads the run of the claimed rollout and finds the rollout in it.
func (h *held) load(ctx context.Context) (err error) {
	if h.run, err = h.host.LoadRun(ctx, h.claim.RunID); err != nil {
		return err
	}
	return h.find()
}

// find finds the rollout's evaluation and agent in its run.
func (h *held) find() error {
	if err := jsonv1.Unmarshal(h.claim.Evaluation, &h.evaluation); err != nil {
		return err
	}
	for _, e := range h.run.Plan.Agents {
		if e.Name == h.claim.Agent {
			h.entry = e
			return nil
		}
	}
	return fmt.Errorf("the plan has no agent %q", h.claim.Agent)
}

// missingVariables names the variables that the rollout needs and this process does not have.
func (h *held) missingVariables() (names []string) {
	needed := h.entry.Required()
	if h.entry.Needs().Sandbox {
		needed = append(needed, h.run.Plan.Env...)
	}
	for _, model := range h.run.Plan.Mocks.Models() {
		needed = append(needed, h.run.Plan.Judges.Keys(model, "")...)
	}
	return h.host.withoutValue(append(needed, judgeKeys(h.run.Plan, h.entry)...))
}

// judgeKeys returns the variables that the judges of an agent's rollouts need.
func judgeKeys(plan plans.Plan, entry agent.Entry) (names []string) {
	if plan.Judges == nil {
		return nil
	}
	for _, def := range plan.Set.Evaluators {
		if def.NotRun != "" {
			continue
		}
		for _, model := range kinds.All.JudgeModels(def) {
			names = append(names, plan.Judges.Keys(model, plans.ModelOf(entry))...)
		}
	}
	return names
}

// withoutValue returns those of the variables that this process does not have, each once.
func (h *Host) withoutValue(needed []string) (names []string) {
	for _, name := range needed {
		if _, ok := h.Resolve(name); !ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Marker returns the marker that the processes of a rollout have in their environment, so that its
// next holder finds them. It names the store, since rollouts of two stores may have the same id.
func Marker(storeID, rolloutID string) string { return storeID + "/" + rolloutID }

func (h *held) marker() string { return Marker(h.host.Store.ID(), h.claim.RolloutID) }

// dir returns the folder in which people find the files of the rollout.
func (h *held) dir() string {
	return string(files.Of(h.host.Store).Run(h.claim.RunID).Rollout(h.claim.RolloutID))
}

// segmentDir returns the folder of the claimed attempt.
func (h *held) segmentDir() string { return h.attemptDir(h.claim.Segment, h.claim.Attempt) }

func (h *held) attemptDir(segment, attempt int) string {
	return files.Of(h.host.Store).Run(h.claim.RunID).Rollout(h.claim.RolloutID).Segment(segment, attempt)
}

// root returns the folder of the files that the agent keeps. In a sandbox without isolation it lies
// outside any checkout, because the agent would pick up the AGENTS.md and the .git above it.
func (h *held) root() string {
	if h.entry.Needs().Sandbox && h.isolation() == sandbox.IsolationProcess {
		return filepath.Join(workspace.StateDir(), h.host.Store.ID(), h.claim.RolloutID)
	}
	return files.Of(h.host.Store).Work(h.claim.RolloutID)
}

func (h *held) workspace() string { return filepath.Join(h.root(), workspace.FolderWorkspace) }

// segmentCopy returns the folder with a copy of the kept folders, made when the segment began.
func (h *held) segmentCopy() string {
	return filepath.Join(h.root(), copyOf(h.claim.Segment))
}

// copyOf returns the name of the copy with which a segment begins.
func copyOf(segment int) string { return copyPrefix + strconv.Itoa(segment) }

const copyPrefix = "segment-"

// IsCopy reports whether a folder of a rollout is such a copy.
func IsCopy(name string) bool { return strings.HasPrefix(name, copyPrefix) }

// isolation returns the isolation of the rollout's agent and verifier.
func (h *held) isolation() string {
	if h.hasServices() {
		return h.evaluation.Task.Services
	}
	own := cmp.Or(h.run.Plan.Isolation, sandbox.IsolationBwrap)
	if h.overImage() && own == sandbox.IsolationBwrap {
		return sandbox.IsolationImage
	}
	return own
}

// hasServices reports whether services of a compose file stand beside agent and verifier.
func (h *held) hasServices() bool {
	return h.evaluation.Task != nil && h.evaluation.Task.Services != ""
}

// overImage reports whether agent and verifier have the root of an image.
func (h *held) overImage() bool { return h.evaluation.Task != nil && h.evaluation.Task.Image }

// layout returns where the folders of the rollout appear in its sandbox. The layers of an image are
// not in it yet.
func (h *held) layout() workspace.Layout {
	l := workspace.Layout{Root: h.root(), Workdir: workspace.DefaultWorkdir,
		OwnTree: h.isolation() != sandbox.IsolationProcess}
	if h.overImage() {
		l.Image = []string{}
	}
	return l
}

package rollout

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/workspace"
)

// diskInterval is how often the size of an agent's folders is measured.
const diskInterval = time.Second

// diskLimit ends an agent that has written more than its task allows.
type diskLimit struct {
	// folders are the folders whose content counts, and remote is a container whose files do; nil if there is
	// none. limit is how many bytes they may have; 0 means no limit.
	folders []string
	remote  *container.Remote
	limit   int64
}

// newDiskLimit returns the disk limit of the rollout's task.
func (h *held) newDiskLimit(spec *sandboxSpec) diskLimit {
	if spec.task == nil {
		return diskLimit{}
	}
	mb := spec.task.Config.Environment.Limits().StorageMB
	if mb <= 0 || mb > 1<<40 {
		return diskLimit{}
	}
	d := diskLimit{limit: int64(mb) << 20, remote: spec.remote}
	for _, name := range (keptFolders{h}).names() {
		d.folders = append(d.folders, filepath.Join(h.root(), name))
	}
	return d
}

// exceeded measures once. It returns nil if the limit is kept.
func (d *diskLimit) exceeded(ctx context.Context) error {
	used, err := workspace.Usage(d.folders...)
	if d.remote != nil {
		used += d.remote.Written(ctx)
	}
	switch {
	case errors.Is(err, workspace.ErrTooDeep):
		return fault.Newf(fault.DiskLimit,
			"the agent has nested folders too deep for their size to be measured, and it may write %d MB (environment.storage_mb)",
			d.limit>>20)
	case err != nil:
		return err
	case used > d.limit:
		return fault.Newf(fault.DiskLimit, "the agent has written %d MB, and may write %d MB (environment.storage_mb)",
			used>>20, d.limit>>20)
	}
	return nil
}

// run runs an agent, and ends it when it has written too much. It measures once more when the agent
// has ended.
func (d *diskLimit) run(ctx context.Context,
	segment func(context.Context) (agent.Outcome, error)) (agent.Outcome, error) {
	if d.limit == 0 {
		return segment(ctx)
	}
	watched, end := context.WithCancelCause(ctx)
	defer end(nil)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		d.watch(watched, end)
	}()
	out, err := segment(watched)
	end(nil)
	<-watching
	if err != nil || out.Fault != nil || ctx.Err() != nil {
		return out, err
	}
	var f *fault.Fault
	if err := d.exceeded(ctx); errors.As(err, &f) {
		out.Fault = f
	} else if err != nil {
		return out, err
	}
	return out, nil
}

// watch measures until the agent has ended. It pauses longer if measuring takes long.
func (d *diskLimit) watch(ctx context.Context, end context.CancelCauseFunc) {
	timer := time.NewTimer(diskInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		if err := d.exceeded(ctx); err != nil {
			end(err)
			return
		}
		timer.Reset(max(diskInterval, 10*time.Since(began)))
	}
}

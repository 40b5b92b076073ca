package meshprovider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/runner"
)

const (
	// defaultLease is how long the registry leases a job that says no max_duration.
	defaultLease = 5 * time.Minute
	// maxRenewal is the longest time between two renewals of a lease.
	maxRenewal = 20 * time.Second
	// tellEvery is the shortest time between two reports of progress.
	tellEvery = time.Second
	// retryMin and retryMax are the pauses after an error of the registry or the store.
	retryMin, retryMax = 200 * time.Millisecond, 5 * time.Second
	// lookAgain is the pause while nobody has the job.
	lookAgain = 2 * time.Second
)

// job is one job in hand.
type job struct {
	*provider
	id string
	// idle says that the job's run only waits. claimedAgain says that the job was claimed again while
	// it was in hand. provider.mu guards both.
	idle, claimedAgain bool

	log        *slog.Logger
	capability service.MeshCapability
	// row is the job in the registry at the last look at the claim.
	row row
	// runID is the run of the job.
	runID string
	// mirrored is the number of the last event of the run that the registry has; -1 is not known.
	mirrored int64
	// cursor is how far the events of the registry were handled.
	cursor int64
	// told is the last delta that was accepted, and toldAt when.
	told   delta
	toldAt time.Time
	// pause is the pause after the next error.
	pause time.Duration
}

func newJob(p *provider, id, runID string) *job {
	return &job{provider: p, id: id, runID: runID, log: p.o.Log.With("job", id), pause: retryMin}
}

// errLost means that the registry may have given the job to somebody else.
var errLost = errors.New("the claim is no longer valid")

// work works on the job until it has ended in the registry, or belongs to somebody else.
func (j *job) work(ctx context.Context) {
	for ctx.Err() == nil {
		done, err := j.attempt(ctx)
		if done {
			return
		}
		if err != nil && !errors.Is(err, errLost) && ctx.Err() == nil && j.pause == retryMin {
			level := slog.LevelWarn
			if errors.As(err, new(net.Error)) || errors.Is(err, io.EOF) { // the registry is gone, which one line reports
				level = slog.LevelDebug
			}
			j.log.Log(ctx, level, "a job of the mesh cannot be gone on with; trying again", "error", err)
		}
		sleep(ctx, j.pause)
		j.pause = min(2*j.pause, retryMax)
	}
}

// attempt checks who has the job, and works on it while this agent has it.
func (j *job) attempt(ctx context.Context) (done bool, err error) {
	now, err := j.registry.row(ctx, j.id)
	switch {
	case statusOf(err) == http.StatusNotFound:
		j.log.Warn("the registry does not know the job any more; its run goes on", "run", j.runID)
		return true, nil
	case err != nil:
		return false, err
	case now.ended():
		return true, j.abandon(ctx, "the job has ended in the registry: "+ended(now))
	case now.Owner == nil && j.runID != "": // its lease has expired, and it is claimed again
		j.setIdle(j, true)
		j.pause = lookAgain
		return false, nil
	case now.Owner == nil:
		return true, nil
	case *now.Owner != j.registry.agent:
		return true, j.abandon(ctx, takenReason)
	}
	if now.Epoch != j.row.Epoch {
		j.runID = "" // a new attempt may be another run
	}
	j.row, j.told = now, delta{}
	j.cursor = max(j.cursor, now.RecvCursor[cursorKey])
	i := slices.IndexFunc(j.o.Mesh.Capabilities, func(c service.MeshCapability) bool { return c.Name == now.Capability })
	if i < 0 {
		return true, j.registry.release(ctx, j.id, "evalrun does not provide the capability any more")
	}
	j.capability = j.o.Mesh.Capabilities[i]
	if err := j.start(ctx); err != nil {
		var wrong *startError
		if errors.As(err, &wrong) {
			return j.send(ctx, delta{Status: "failed", Error: wrong.Error()})
		}
		return false, err
	}
	return j.follow(ctx)
}

func ended(r row) string {
	if r.Error != nil {
		return r.Status + " (" + *r.Error + ")"
	}
	return r.Status
}

// startError is why a job cannot be done, for its submitter.
type startError struct{ error }

// takenReason is why a run is cancelled whose job another agent has claimed.
const takenReason = "another agent of the mesh has claimed the job"

// start finds the run of the job, or makes it. It skips a run that failed and is to be retried: the
// job was given back for another run, which has the next key. It also skips a run that was
// cancelled because another agent had the job, which has come back. There are as many runs as the
// job has attempts.
func (j *job) start(ctx context.Context) error {
	q, err := request(j.capability, j.row)
	if err != nil {
		return &startError{err}
	}
	for n := 0; ; n++ {
		q.IdempotencyKey = key(j.id, n)
		id := j.o.Service.RunID(q.By, q.IdempotencyKey)
		found, err := j.o.Service.Jobs().Job(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			failpoint.Hit("mesh.starting")
			started, err := j.o.Service.Start(ctx, q)
			var wrong *runner.InputError
			switch {
			case errors.As(err, &wrong):
				return &startError{errors.New(strings.TrimSpace(wrong.Error()))}
			case errors.Is(err, service.ErrConflict): // it was made before the job was claimed again
			case err != nil:
				return err
			}
			if started.New {
				j.log.Info("a job of the mesh is a run", "run", id)
			}
			failpoint.Hit("mesh.started")
		case err != nil:
			return err
		case taken(found), n < j.row.MaxRetries && j.retryable(found) && id != j.runID:
			continue
		}
		j.runID, j.mirrored = id, -1
		return nil
	}
}

// key is the idempotency key of the n-th run of a job.
func key(jobID string, n int) string {
	if n == 0 {
		return jobID
	}
	return fmt.Sprintf("%s/%d", jobID, n)
}

// taken reports whether a run was cancelled because another agent had its job.
func taken(run store.Job) bool {
	return run.Status == store.JobCancelled && strings.HasSuffix(run.Error, takenReason)
}

// severalFaulted matches the beginning of the error of a run of several rollouts.
var severalFaulted = regexp.MustCompile(`^\d+ of \d+ rollouts faulted; the first: `)

// retryable reports whether a run has failed for a reason that allows a retry.
func (j *job) retryable(run store.Job) bool {
	category, _, _ := strings.Cut(severalFaulted.ReplaceAllString(run.Error, ""), ":")
	return run.Status == store.JobFailed && slices.Contains(j.capability.RetryOn, fault.Category(category))
}

// cursorKey is the key under which the registry keeps how far its events were handled.
const cursorKey = "evalrun"

// follow reports the run's progress to the registry, and passes the registry's events to the run,
// until the run has ended or the claim is lost.
func (j *job) follow(ctx context.Context) (done bool, err error) {
	listening, stop := context.WithCancel(ctx)
	said := make(chan event)
	heard := make(chan error, 1)
	go func() { heard <- j.listen(listening, j.row.Epoch, j.cursor, said) }()
	over := false
	defer func() {
		if stop(); !over {
			<-heard
		}
	}()
	st := j.o.Service.Jobs()
	for {
		changed := st.Changed(j.runID)
		run, err := st.Job(ctx, j.runID)
		if err == nil {
			err = j.mirror(ctx)
		}
		switch {
		case errors.Is(err, store.ErrNotFound):
			return j.send(ctx, delta{Status: "failed", Error: "the run of the job was removed"})
		case ctx.Err() != nil:
			return true, j.farewell(ctx)
		case err != nil:
			return false, err
		case run.Status.IsTerminal():
			return j.end(ctx, run)
		}
		j.setIdle(j, run.Status == store.JobInputRequired || run.Suspended > 0 && run.Suspended+run.Ended == run.Total)
		next, err := j.report(ctx, run)
		if err != nil {
			return false, err
		}
		timer := time.NewTimer(next)
		select {
		case <-changed:
		case <-timer.C:
		case e := <-said:
			err = j.act(ctx, e)
		case err = <-heard:
			over = true
		case <-ctx.Done():
		}
		timer.Stop()
		if err != nil && ctx.Err() == nil {
			return false, err
		}
	}
}

// farewell reports the end of the run, if it has ended, when this process ends.
func (j *job) farewell(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	run, err := j.o.Service.Jobs().Job(ctx, j.runID)
	if err == nil && run.Status.IsTerminal() {
		_, err = j.end(ctx, run)
	}
	return err
}

// report reports the state of a run that has not ended, if that is new or the lease is to be
// renewed. It returns how long no report is needed.
func (j *job) report(ctx context.Context, run store.Job) (next time.Duration, err error) {
	d := delta{Status: string(run.Status), RecvCursor: map[string]int64{cursorKey: j.cursor}}
	if run.Ended > 0 && run.Total > 0 {
		share := float64(run.Ended) / float64(run.Total)
		d.Progress = &share
	}
	red, err := j.o.Service.Redactor(ctx, j.runID)
	if err != nil {
		return 0, err
	}
	message := red.String(service.ProgressMessage(run))
	if message != "" || j.told.Message != nil {
		d.Message = &message
	}
	renew := j.renewal()
	since := time.Since(j.toldAt)
	urgent := d.Status != j.told.Status || j.told.RecvCursor[cursorKey] != j.cursor
	changed := urgent || !same(d.Message, j.told.Message) || !same(d.Progress, j.told.Progress)
	switch {
	case !changed && since < renew:
		return renew - since, nil
	case !urgent && since < tellEvery:
		return tellEvery - since, nil
	}
	if err := j.tell(ctx, d); err != nil {
		return 0, err
	}
	j.told, j.toldAt, j.pause = d, time.Now(), retryMin
	return renew, nil
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// renewal is the time between two renewals of the lease.
func (j *job) renewal() time.Duration {
	lease := defaultLease
	if d := j.row.MaxDuration; d != nil && *d > 0 {
		lease = time.Duration(min(*d, maxSeconds)) * time.Second
	}
	return min(lease/3, maxRenewal)
}

// tell sends a delta. The error is errLost if the registry rejects it.
func (j *job) tell(ctx context.Context, d delta) error {
	d.ID, d.Epoch = j.id, j.row.Epoch
	rejected, err := j.registry.tell(ctx, d)
	if err == nil && rejected != "" {
		j.log.Info("the registry of the mesh takes no report of a job", "reason", rejected)
		err = errLost
	}
	return err
}

// send is tell for the last delta.
func (j *job) send(ctx context.Context, d delta) (done bool, err error) {
	failpoint.Hit("mesh.ending")
	err = j.tell(ctx, d)
	if isFinal(err) {
		j.log.Warn("the registry of the mesh does not take the end of a job", "error", err)
		return true, nil
	}
	return err == nil, err
}

// end reports how the run has ended, or releases the job to be retried.
func (j *job) end(ctx context.Context, run store.Job) (done bool, err error) {
	red, err := j.o.Service.Redactor(ctx, j.runID)
	if err != nil {
		return false, err
	}
	reason := red.String(run.Error)
	switch {
	case run.Status == store.JobCompleted:
		summary, err := j.o.Service.Summary(ctx, j.runID)
		if err != nil {
			return false, err
		}
		result, err := json.Marshal(summary)
		if err != nil {
			return false, err
		}
		whole := 1.0
		return j.send(ctx, delta{Status: "completed", Progress: &whole, Result: red.JSON(result)})
	case run.Status == store.JobCancelled:
		return j.send(ctx, delta{Status: "cancelled", Message: &reason})
	case j.row.Attempts <= j.row.MaxRetries && j.retryable(run):
		failpoint.Hit("mesh.ending")
		err := j.registry.release(ctx, j.id, reason)
		if err == nil {
			j.runID = ""
		}
		return err == nil, err
	}
	return j.send(ctx, delta{Status: "failed", Error: reason})
}

// abandon cancels the run of a job that is not this agent's any more.
func (j *job) abandon(ctx context.Context, reason string) error {
	_, err := j.o.Service.Jobs().CancelJob(ctx, j.runID, reason, 0, wait.LocalSources()...)
	if errors.Is(err, store.ErrJobEnded) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil {
		j.log.Info("the run of a job of the mesh is cancelled", "run", j.runID, "reason", reason)
		j.o.Service.Runner().Wake(j.runID)
	}
	return err
}

// sleep waits, at most until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

package meshprovider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// The events of the registry that the provider handles: the job is cancelled, or somebody answers a
// question of its run.
const (
	cancelledEvent = "cancelled"
	answerEvent    = service.AnswerEvent
)

// mirroredTypes are the events of a run that are posted to the log of its job.
var mirroredTypes = []schemas.EventType{
	schemas.EventRunCreated, schemas.EventRolloutSuspended, schemas.EventRolloutResumed, schemas.EventRunFinished,
}

// mirrorPage is how many events are read at once.
const mirrorPage = 100

// mirror posts the new ones. Their payload is the event in the form of /v1, whose number reveals an
// event that was posted twice.
func (j *job) mirror(ctx context.Context) error {
	if j.mirrored < 0 {
		last, err := j.lastMirrored(ctx)
		if err != nil {
			return err
		}
		j.mirrored = last
	}
	reader, err := j.o.Service.Read(ctx, j.runID, j.mirrored)
	if err != nil {
		return err
	}
	defer reader.Close()
	for {
		page, err := reader.After(ctx, j.mirrored, mirrorPage, mirroredTypes)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			err := j.registry.post(ctx, j.id, event{Type: string(e.Type), Payload: e.JSON})
			switch {
			case statusOf(err) == http.StatusConflict || statusOf(err) == http.StatusNotFound:
				return errLost
			case isFinal(err):
				j.log.Warn("the registry of the mesh does not take an event", "error", err)
			case err != nil:
				j.mirrored = -1 // it may have arrived
				return err
			}
			j.mirrored = e.Seq
		}
		j.mirrored = max(j.mirrored, page.Next)
		if page.Changed != nil || page.Final || len(page.Events) == 0 {
			return nil
		}
	}
}

// lastMirrored is the number of the run's last event in the log of its job.
func (j *job) lastMirrored(ctx context.Context) (last int64, err error) {
	types := make([]string, 0, len(mirroredTypes))
	for _, t := range mirroredTypes {
		types = append(types, string(t))
	}
	for after := int64(0); ; {
		page, err := j.registry.events(ctx, j.id, strings.Join(types, ","), after, 0, 0)
		if err != nil || len(page) == 0 {
			return last, err
		}
		for _, e := range page {
			var p struct {
				RunID string `json:"runId"`
				Seq   int64  `json:"seq"`
			}
			if json.Unmarshal(e.Payload, &p) == nil && p.RunID == j.runID {
				last = max(last, p.Seq)
			}
			if e.Seq <= after {
				return last, fmt.Errorf("the registry gave events that were not asked for")
			}
			after = e.Seq
		}
	}
}

// listen reads events of the job by others, until the claim is lost or the context ends.
func (j *job) listen(ctx context.Context, epoch, after int64, said chan<- event) error {
	pause := retryMin
	for {
		found, err := j.registry.events(ctx, j.id, cancelledEvent+","+answerEvent, after, epoch,
			max(j.renewal(), time.Second))
		switch {
		case ctx.Err() != nil:
			return nil
		case isFinal(err):
			return errLost
		case err != nil:
			sleep(ctx, pause)
			pause = min(2*pause, retryMax)
			continue
		}
		pause = retryMin
		for _, e := range found {
			select {
			case said <- e:
			case <-ctx.Done():
				return nil
			}
			after = max(after, e.Seq)
		}
		if len(found) > 0 && found[len(found)-1].Type == cancelledEvent {
			return errLost // the job has ended
		}
	}
}

// act handles an event once.
func (j *job) act(ctx context.Context, e event) error {
	if e.Type == cancelledEvent {
		var p struct{ Reason string }
		_ = json.Unmarshal(e.Payload, &p) // without a payload there is no reason
		if p.Reason == "" {
			p.Reason = "the job was cancelled in the mesh"
		}
		return j.abandon(ctx, p.Reason)
	}
	if err := j.answer(ctx, e); err != nil {
		return err
	}
	j.cursor = max(j.cursor, e.Seq)
	return nil
}

// seqKey is the member of the trace context that identifies an answer that was accepted before.
const seqKey = "evalrun.dev/mesh-seq"

// answer delivers an answer. An answer without a question is ignored.
func (j *job) answer(ctx context.Context, e event) error {
	st := j.o.Service.Jobs()
	trace, err := json.Marshal(map[string]int64{seqKey: e.Seq})
	if err != nil {
		return err
	}
	for after := int64(0); ; {
		log, err := st.JobEvents(ctx, j.runID, after, []string{answerEvent}, mirrorPage)
		if err != nil {
			return err
		}
		for _, one := range log.Events {
			if string(one.TraceContext) == string(trace) {
				return nil
			}
		}
		if !log.More {
			break
		}
		after = log.Read
	}
	delivery, err := j.o.Service.Answer(ctx, j.runID, e.Payload, "mesh")
	if err == nil {
		_, err = st.PostJobEvent(ctx, store.JobEvent{JobID: j.runID, Type: answerEvent, Payload: e.Payload, PostedBy: "mesh",
			TraceContext: trace}, delivery)
	}
	switch {
	case err == nil:
		j.o.Service.Runner().Wake(j.runID)
	case errors.As(err, new(*service.AnswerError)), errors.Is(err, store.ErrNotAsked), errors.Is(err, store.ErrJobEnded):
		j.log.Warn("an answer of the mesh is not taken", "event", e.Seq, "error", err)
		return nil
	}
	return err
}

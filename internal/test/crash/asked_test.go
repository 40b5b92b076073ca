package crash

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/internal/peers/fakemesh"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// asksProcess is a job of the registry whose worker asks something and goes on when it is answered.
const asksProcess = "MeshAsks"

// ask lets the worker of a job ask, until there is an answer.
func ask(j *fakemesh.Job) {
	question := "May I go on?"
	j.Status, j.ProgressMessage = "input_required", &question
	if len(j.Events) > 0 {
		j.Status, j.Result = "completed", json.RawMessage(`{"job":"done"}`)
	}
}

// answerQuestions is a person beside the processes that are killed, who answers what jobs ask as
// soon as the store says that they do.
func (s *scenario) answerQuestions() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := s.answerNow(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, store.ErrNotFound) {
				s.t.Errorf("answering: %v", err)
				return
			}
		}
	}()
	s.t.Cleanup(func() { cancel(); <-ended })
}

func (s *scenario) answerNow(ctx context.Context) error {
	st, err := sqlite.Open(filepath.Join(s.dir, ".evalrun"), store.Options{MustExist: true})
	if err != nil {
		return err
	}
	defer st.Close()
	var asked []string
	if err := st.Triggers(ctx, runID, false, func(g store.Trigger) error {
		if g.AskedBy != "" {
			asked = append(asked, g.ID)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, id := range asked {
		if _, err := st.Deliver(ctx, store.Delivery{TriggerID: id, Status: store.StatusSuccessful, Payload: json.RawMessage(`{"approved":true}`), By: "test"}); err != nil {
			return err
		}
	}
	return nil
}

// checkAnswers looks for jobs that were told an answer twice, or none.
func (s *scenario) checkAnswers(note func(string, ...any)) {
	for _, j := range s.service.mesh.Jobs() {
		if j.Capability == asksProcess && len(j.Events) != 1 {
			note("job %s has asked once and was answered %d times: %+v", j.ID, len(j.Events), j.Events)
		}
	}
}

package wait

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
)

// uipathSource starts and watches jobs of UiPath's Orchestrator (UiPath's trigger reader does so).
type uipathSource struct {
	client *client
	// resolve gives the values of variables, for each request anew: a token lives for an hour, a
	// job for days.
	resolve resolver
	config  UiPathConfig
	polling Polling
}

func newUiPath(c *client, resolve resolver, config UiPathConfig, polling Polling) *uipathSource {
	config.URL = strings.TrimSuffix(config.URL, "/")
	return &uipathSource{c, resolve, config, polling}
}

// StartKind is searchable: StartJobs takes a Reference, "optional user-specified reference for
// jobs" (StartProcessDto in Orchestrator's swagger), and a job has the same member ("reference
// identifier for the job", JobDto; @uipath/uipath-typescript, models of jobs), by which OData
// filters. Orchestrator itself does not deduplicate by it: two starts with one reference are two
// jobs.
func (s *uipathSource) StartKind() Start { return Searchable }

// Start starts a job, unless there is one with the trigger's id as its reference.
func (s *uipathSource) Start(ctx context.Context, p Job) (string, error) {
	if key, found, err := s.Find(ctx, p); found || err != nil {
		return key, notStarted(err)
	}
	release, err := s.release(ctx, p)
	if err != nil {
		return "", notStarted(err)
	}
	type startInfo struct {
		ReleaseKey     string
		Strategy       string
		JobsCount      int
		InputArguments string // JSON in a string
		Reference      string
	}
	body := marshal(map[string]startInfo{"startInfo": {release, "ModernJobsCount", 1, string(p.Spec.InputArguments()), p.TriggerID}})
	failpoint.Hit("trigger.starting")
	if !p.Until.IsZero() && !s.client.now().Before(p.Until) {
		return "", &RetryError{0, errTooLate, true}
	}
	a, err := s.ask(ctx, p, http.MethodPost, jobsPath+"/"+namespace+"StartJobs", body)
	if err != nil && !a.sent {
		return "", notStarted(err)
	}
	if err == nil {
		err = s.refused(p, a)
	}
	if err != nil {
		return "", err
	}
	jobs, err := page(a)
	if err != nil || len(jobs) == 0 || jobs[0].text("Key") == "" {
		return "", fault.New(fault.StartUnknown, "the job was started, but Orchestrator's answer has no key: "+excerpt(a.body))
	}
	return jobs[0].text("Key"), nil
}

// Find looks for the job whose reference is the trigger's id.
func (s *uipathSource) Find(ctx context.Context, p Job) (string, bool, error) {
	a, err := s.ask(ctx, p, http.MethodGet, jobsPath+"?$filter=Reference%20eq%20%27{triggerId}%27&$select=Id,Key,Reference&$top=1", nil)
	if err == nil {
		err = s.refused(p, a)
	}
	if err != nil {
		return "", false, err
	}
	jobs, err := page(a)
	switch {
	case err != nil:
		return "", false, s.retry(p, a, err)
	case len(jobs) == 0:
		return "", false, nil
	case !strings.EqualFold(jobs[0].text("Reference"), p.TriggerID) || jobs[0].text("Key") == "":
		// Were the filter ignored, the answer would be somebody else's job.
		return "", false, fault.New(fault.Job, "Orchestrator was asked for the job with the reference "+p.TriggerID+" and answered another: "+excerpt(a.body))
	}
	return jobs[0].text("Key"), true, nil
}

// release gives the key of the release, as Orchestrator calls a process in a folder, with the name
// that the agent said.
func (s *uipathSource) release(ctx context.Context, p Job) (string, error) {
	quoted := p
	quoted.Spec.Process = strings.ReplaceAll(p.Spec.Process, "'", "''") // within OData's quotes
	a, err := s.ask(ctx, quoted, http.MethodGet, "/odata/Releases?$filter=Name%20eq%20%27{process}%27&$top=1", nil)
	if err == nil {
		err = s.refused(p, a)
	}
	if err != nil {
		return "", err
	}
	releases, err := page(a)
	switch {
	case err != nil:
		return "", s.retry(p, a, err)
	case len(releases) == 0:
		return "", fault.Newf(fault.Job, "Orchestrator has no process %q in %s", excerpt([]byte(p.Spec.Process)), s.folderOf(p))
	case releases[0].text("Key") == "":
		return "", s.retry(p, a, fmt.Errorf("%s answered a release without a key: %s", a.what, excerpt(a.body)))
	}
	return releases[0].text("Key"), nil
}

// Check asks for the job.
func (s *uipathSource) Check(ctx context.Context, p Job) (Status, error) {
	job, a, err := s.job(ctx, p)
	var f *fault.Fault
	switch {
	case errors.As(err, &f):
		return Status{Done: true, Fault: f}, nil
	case err != nil:
		return Status{}, err
	case !ended(job.text("State")):
		return Status{After: s.after(p, a)}, nil
	case wantsJob(p.Spec):
		return Status{Done: true, Payload: a.value()}, nil
	}
	payload, err := output(job)
	if errors.As(err, &f) {
		return Status{Done: true, Fault: f}, nil
	}
	return Status{Done: true, Payload: payload}, err
}

// job fetches the job. It has a state.
func (s *uipathSource) job(ctx context.Context, p Job) (object, answer, error) {
	a, err := s.ask(ctx, p, http.MethodGet, jobsPath+"/"+namespace+"GetByKey(identifier={itemKey})", nil)
	switch {
	case err != nil:
		return nil, a, err
	case a.status == http.StatusNotFound || a.status == http.StatusGone:
		return nil, a, fault.New(fault.JobLost, "the job is lost: "+a.error().Error())
	case a.status == http.StatusBadRequest: // a key that is no UUID, or no folder
		return nil, a, fault.New(fault.Job, "the job cannot be watched: "+a.error().Error())
	case !a.ok():
		// A token may be replaced and a right be given: neither ends a wait of days.
		return nil, a, s.retry(p, a, explained(a))
	}
	job, ok := parseObject(a.value())
	if !ok || job.text("State") == "" {
		return nil, a, s.retry(p, a, fmt.Errorf("%s answered something that is not a job: %s", a.what, excerpt(a.body)))
	}
	return job, a, nil
}

// Cancel asks the job to stop. The job may go on for a while, and may disregard it.
func (s *uipathSource) Cancel(ctx context.Context, p Job) error {
	if !hasKey(p) {
		return nil
	}
	job, a, err := s.job(ctx, p)
	switch {
	case a.status == http.StatusNotFound || a.status == http.StatusGone:
		return nil
	case err != nil:
		return err
	case ended(job.text("State")):
		return nil
	}
	id := job.text("Id")
	if strings.Trim(id, "0123456789") != "" || id == "" {
		return fmt.Errorf("%s answered a job without a number: %s", a.what, excerpt(a.body))
	}
	a, err = s.ask(ctx, p, http.MethodPost, jobsPath+"("+id+")/"+namespace+"StopJob", json.RawMessage(`{"strategy":"SoftStop"}`))
	if err != nil || a.ok() || a.status == http.StatusNotFound || a.status == http.StatusConflict || a.status == http.StatusGone {
		return err
	}
	return explained(a)
}

// ended tells whether a state is final. All others go on, also Stopping and Terminating and those
// that are yet to be invented.
func ended(state string) bool {
	switch strings.ToLower(state) {
	case "successful", "faulted", "stopped":
		return true
	}
	return false
}

// wantsJob tells whether the job itself is the payload, however it ended: of what is named …Raw.
// Otherwise it is what the job gave out, and a job that did not is a fault (UiPath's trigger reader
// does so).
func wantsJob(s Spec) bool { return strings.HasSuffix(s.Name, "_RAW") }

// noContent stands for an output without members. LangGraph takes an empty resume value for none,
// and would wait for ever.
var noContent = json.RawMessage(`{"state":"successful","__internal":"NO_CONTENT"}`)

// output is what a job that has ended gave out, as UiPath's own runtime hands it to an agent. The
// error is a *fault.Fault.
func output(job object) (json.RawMessage, error) {
	if state := job.text("State"); !strings.EqualFold(state, "successful") {
		return nil, fault.New(fault.Job, reason(job, state))
	}
	text := job.text("OutputArguments")
	if text == "" {
		if file := job.text("OutputFile"); file != "" {
			return nil, fault.New(fault.Job, "the job was successful, but its output is the file "+file+" at Orchestrator, which cannot be fetched")
		}
		return json.RawMessage("null"), nil
	}
	payload := documentOrText([]byte(text))
	if o, ok := parseObject(payload); ok && len(o) == 0 {
		return noContent, nil
	}
	return payload, nil
}

// reason says why a job was not successful.
func reason(job object, state string) string {
	what := fmt.Sprintf("the job %s is %s", job.text("Key"), strings.ToLower(state))
	v, _ := job.get("JobError")
	if e, ok := parseObject(v); ok {
		var said []string
		for _, name := range []string{"Title", "Detail"} {
			if s := e.text(name); s != "" {
				said = append(said, s)
			}
		}
		if len(said) > 0 {
			return what + ": " + strings.Join(said, ": ")
		}
	}
	if info := job.text("Info"); info != "" {
		return what + ": " + info
	}
	return what
}

// Package uipath is the source of jobs of UiPath's Orchestrator. Package httpcall sends and repeats
// the requests.
package uipath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

// source implements wait.Source, as UiPath's trigger reader does it.
type source struct {
	httpcall.Caller
	config Config
}

// New returns the source for one entry of the eval set's jobs.
func New(c httpcall.Caller, config Config) wait.Source {
	config.URL = strings.TrimSuffix(config.URL, "/")
	return &source{c, config}
}

// StartKind is searchable: StartJobs takes a Reference, "optional user-specified reference for
// jobs" (StartProcessDto in Orchestrator's swagger), and a job has the same member ("reference
// identifier for the job", JobDto; @uipath/uipath-typescript, models of jobs), by which OData
// filters. Orchestrator itself does not deduplicate by it: two starts with one reference are two
// jobs.
func (s *source) StartKind() wait.Start { return wait.Searchable }

// Start starts a job, unless there is one with the trigger's id as its reference.
func (s *source) Start(ctx context.Context, j wait.Job) (string, error) {
	if key, found, err := s.Find(ctx, j); found || err != nil {
		return key, wait.NotStarted(err)
	}
	release, err := s.release(ctx, j)
	if err != nil {
		return "", wait.NotStarted(err)
	}
	type startInfo struct {
		ReleaseKey     string
		Strategy       string
		JobsCount      int
		InputArguments string // JSON in a string
		Reference      string
	}
	body := jsonvalue.Marshal(map[string]startInfo{
		"startInfo": {release, "ModernJobsCount", 1, string(j.Spec.InputArguments()), j.TriggerID},
	})
	failpoint.Hit("trigger.starting")
	if err := j.MayStart(s.Now()); err != nil {
		return "", err
	}
	a, err := s.ask(ctx, j, http.MethodPost, jobsPath+"/"+namespace+"StartJobs", body)
	if err != nil && !a.Sent {
		return "", wait.NotStarted(err)
	}
	if err == nil {
		err = s.refused(j, a)
	}
	if err != nil {
		return "", err
	}
	jobs, err := page(a)
	if err != nil || len(jobs) == 0 || jobs[0].Text("Key") == "" {
		return "", fault.New(fault.StartUnknown,
			"the job was started, but Orchestrator's answer has no key: "+jsonvalue.Excerpt(a.Body))
	}
	return jobs[0].Text("Key"), nil
}

// Find looks for the job whose reference is the trigger's id.
func (s *source) Find(ctx context.Context, j wait.Job) (string, bool, error) {
	a, err := s.ask(ctx, j, http.MethodGet,
		jobsPath+"?$filter=Reference%20eq%20%27{triggerId}%27&$select=Id,Key,Reference&$top=1", nil)
	if err == nil {
		err = s.refused(j, a)
	}
	if err != nil {
		return "", false, err
	}
	jobs, err := page(a)
	switch {
	case err != nil:
		return "", false, s.Retry(j, a, err)
	case len(jobs) == 0:
		return "", false, nil
	case !strings.EqualFold(jobs[0].Text("Reference"), j.TriggerID) || jobs[0].Text("Key") == "":
		// Were the filter ignored, the answer would be somebody else's job.
		return "", false, fault.New(fault.Job,
			"Orchestrator was asked for the job with the reference "+j.TriggerID+" and answered another: "+
				jsonvalue.Excerpt(a.Body))
	}
	return jobs[0].Text("Key"), true, nil
}

// release gives the key of the release, as Orchestrator calls a process in a folder, with the name
// that the agent said.
func (s *source) release(ctx context.Context, j wait.Job) (string, error) {
	quoted := url.QueryEscape(strings.ReplaceAll(j.Spec.Process, "'", "''")) // within OData's quotes
	a, err := s.ask(ctx, j, http.MethodGet, "/odata/Releases?$filter=Name%20eq%20%27"+quoted+"%27&$top=1", nil)
	if err == nil {
		err = s.refused(j, a)
	}
	if err != nil {
		return "", err
	}
	releases, err := page(a)
	switch {
	case err != nil:
		return "", s.Retry(j, a, err)
	case len(releases) == 0:
		return "", fault.Newf(fault.Job, "Orchestrator has no process %q in %s",
			jsonvalue.Excerpt([]byte(j.Spec.Process)), s.folderOf(j))
	case releases[0].Text("Key") == "":
		return "", s.Retry(j, a, fmt.Errorf("%s answered a release without a key: %s", a.What, jsonvalue.Excerpt(a.Body)))
	}
	return releases[0].Text("Key"), nil
}

// Check asks for the job.
func (s *source) Check(ctx context.Context, j wait.Job) (wait.Status, error) {
	job, a, err := s.job(ctx, j)
	var f *fault.Fault
	switch {
	case errors.As(err, &f):
		return wait.Status{Done: true, Fault: f}, nil
	case err != nil:
		return wait.Status{}, err
	case !ended(job.Text("State")):
		return wait.Status{After: s.After(j, a)}, nil
	case wantsJob(j.Spec):
		return wait.Status{Done: true, Payload: a.Value()}, nil
	}
	payload, err := output(job)
	if errors.As(err, &f) {
		return wait.Status{Done: true, Fault: f}, nil
	}
	return wait.Status{Done: true, Payload: payload}, err
}

// job fetches the job. A job that it returns has a state.
func (s *source) job(ctx context.Context, j wait.Job) (jsonvalue.Object, httpcall.Answer, error) {
	a, err := s.ask(ctx, j, http.MethodGet, jobsPath+"/"+namespace+"GetByKey(identifier={itemKey})", nil)
	switch {
	case err != nil:
		return nil, a, err
	case a.IsGone():
		return nil, a, fault.New(fault.JobLost, "the job is lost: "+a.Err().Error())
	case a.Status == http.StatusBadRequest: // a key that is no UUID, or no folder
		return nil, a, fault.New(fault.Job, "the job cannot be watched: "+a.Err().Error())
	case !a.OK():
		// A token may be replaced and a right be given: neither ends a wait of days.
		return nil, a, s.Retry(j, a, explained(a))
	}
	job, ok := jsonvalue.ParseObject(a.Value())
	if !ok || job.Text("State") == "" {
		return nil, a, s.Retry(j, a, fmt.Errorf(
			"%s answered something that is not a job: %s", a.What, jsonvalue.Excerpt(a.Body)))
	}
	return job, a, nil
}

// Cancel asks the job to stop. The job may go on for a while, and may disregard it.
func (s *source) Cancel(ctx context.Context, j wait.Job) error {
	if !j.HasKey() {
		return nil
	}
	job, a, err := s.job(ctx, j)
	switch {
	case a.IsGone():
		return nil
	case err != nil:
		return err
	case ended(job.Text("State")):
		return nil
	}
	id := job.Text("Id")
	if strings.Trim(id, "0123456789") != "" || id == "" {
		return fmt.Errorf("%s answered a job without a number: %s", a.What, jsonvalue.Excerpt(a.Body))
	}
	a, err = s.ask(ctx, j, http.MethodPost, jobsPath+"("+id+")/"+namespace+"StopJob",
		json.RawMessage(`{"strategy":"SoftStop"}`))
	if err != nil || a.OK() || a.IsGone() || a.Status == http.StatusConflict {
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

// wantsJob tells whether the job itself is the payload, however it ended. That is so for triggers
// that are named …Raw. Otherwise the payload is what the job gave out, and a job that was not
// successful is a fault (UiPath's trigger reader does so).
func wantsJob(s wait.Spec) bool { return strings.HasSuffix(s.Name, "_RAW") }

// noContent stands for an output without members. LangGraph takes an empty resume value for none,
// and would wait for ever.
var noContent = json.RawMessage(`{"state":"successful","__internal":"NO_CONTENT"}`)

// output returns what a job that has ended gave out, as UiPath's own runtime hands it to an agent.
// The error is a *fault.Fault.
func output(job jsonvalue.Object) (json.RawMessage, error) {
	if state := job.Text("State"); !strings.EqualFold(state, "successful") {
		return nil, fault.New(fault.Job, reason(job, state))
	}
	text := job.Text("OutputArguments")
	if text == "" {
		if file := job.Text("OutputFile"); file != "" {
			return nil, fault.New(fault.Job,
				"the job was successful, but its output is the file "+file+" at Orchestrator, which cannot be fetched")
		}
		return json.RawMessage("null"), nil
	}
	payload := jsonvalue.FromOutput([]byte(text))
	if o, ok := jsonvalue.ParseObject(payload); ok && len(o) == 0 {
		return noContent, nil
	}
	return payload, nil
}

// reason says why a job was not successful.
func reason(job jsonvalue.Object, state string) string {
	what := fmt.Sprintf("the job %s is %s", job.Text("Key"), strings.ToLower(state))
	v, _ := job.Get("JobError")
	if e, ok := jsonvalue.ParseObject(v); ok {
		var said []string
		for _, name := range []string{"Title", "Detail"} {
			if s := e.Text(name); s != "" {
				said = append(said, s)
			}
		}
		if len(said) > 0 {
			return what + ": " + strings.Join(said, ": ")
		}
	}
	if info := job.Text("Info"); info != "" {
		return what + ": " + info
	}
	return what
}

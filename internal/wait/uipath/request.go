package uipath

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf16"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

const (
	jobsPath = "/odata/Jobs"
	// namespace begins the names of Orchestrator's OData functions and actions.
	namespace = "UiPath.Server.Configuration.OData."
)

// ask sends a request to a path of Orchestrator's API, which is a template. An error that is not a
// *fault.Fault is a *RetryError.
func (s *source) ask(
	ctx context.Context, j wait.Job, method, path string, body json.RawMessage,
) (httpcall.Answer, error) {
	q := httpcall.Call{
		Request: httpcall.Request{
			Method: method, URL: s.config.URL + path, Headers: map[string]string{"Authorization": "Bearer " + s.config.Token},
		},
		Job: j, LiteralBody: body,
	}
	var err error
	if q.LiteralHeaders, err = s.folder(j); err != nil {
		return httpcall.Answer{}, s.Retry(j, httpcall.Answer{}, err)
	}
	a, err := s.Do(ctx, q)
	if err != nil {
		return a, s.Retry(j, a, err)
	}
	return a, nil
}

// folder returns the header that says in which folder the job is. A job that exists already is in
// the folder that the agent said, else in the configured one. A job to start goes to the configured
// folder, else to the one that the agent said: a model may choose what to start, and the eval set
// where.
func (s *source) folder(j wait.Job) (map[string]string, error) {
	key, path := j.Spec.FolderKey, j.Spec.FolderPath
	if configured := s.config.FolderKey != "" || s.config.FolderPath != ""; configured &&
		(j.Spec.ItemKey == "" || key == "" && path == "") {
		var err, err2 error
		key, err = s.Resolve.Expand(s.config.FolderKey)
		path, err2 = s.Resolve.Expand(s.config.FolderPath)
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
	}
	switch {
	case key != "" && !printable(key):
		return nil, fault.Newf(fault.Job, "expected the key of a folder, got %q", jsonvalue.Excerpt([]byte(key)))
	case key != "":
		return map[string]string{"X-UIPATH-FolderKey": key}, nil
	case path == "":
		return nil, nil
	case printable(path):
		return map[string]string{"X-UIPATH-FolderPath": path}, nil
	}
	// Anything but ASCII goes as UTF-16, little endian, in base64 (Orchestrator's API guide; so
	// does UiPath's TypeScript SDK).
	var units []byte
	for _, u := range utf16.Encode([]rune(path)) {
		units = binary.LittleEndian.AppendUint16(units, u)
	}
	return map[string]string{"X-UIPATH-FolderPath-Encoded": base64.StdEncoding.EncodeToString(units)}, nil
}

// folderOf names the folder in a message.
func (s *source) folderOf(j wait.Job) string {
	switch {
	case s.config.FolderKey != "":
		return "the folder " + s.config.FolderKey
	case s.config.FolderPath != "":
		return "the folder " + s.config.FolderPath
	}
	return fmt.Sprintf("the folder %q", jsonvalue.Excerpt([]byte(j.Spec.FolderKey+j.Spec.FolderPath)))
}

// printable tells whether a text can be the value of a header as it is.
func printable(s string) bool {
	return strings.TrimSpace(s) == s && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// refused is the error of an answer to the start of a job, or to a request before it; nil if there
// is none. A request that would be refused again is not repeated.
func (s *source) refused(j wait.Job, a httpcall.Answer) error {
	switch {
	case a.OK():
		return nil
	case a.Status < 400, retry.Temporary(a.Status):
		return s.Retry(j, a, a.Err())
	}
	return fault.New(fault.Job, "the job could not be started: "+explained(a).Error())
}

// explained is the error of an answer. It says what the error means if the reason is in the
// configuration.
func explained(a httpcall.Answer) error {
	switch a.Status {
	case http.StatusUnauthorized:
		return fmt.Errorf("the token is not accepted, it may have expired: %w", a.Err())
	case http.StatusForbidden:
		return fmt.Errorf("the token gives no right to this in the folder: %w", a.Err())
	}
	return a.Err()
}

// page gives the elements of a page of OData.
func page(a httpcall.Answer) ([]jsonvalue.Object, error) {
	body, _ := jsonvalue.ParseObject(a.Value())
	list, _ := body.Get("value")
	wrong := fmt.Errorf("%s answered something that is not a list of OData: %s", a.What, jsonvalue.Excerpt(a.Body))
	if jsonvalue.KindOf(list) != '[' {
		return nil, wrong
	}
	items, err := jsonvalue.Elements(list, maxPage)
	if err != nil {
		return nil, wrong
	}
	out := make([]jsonvalue.Object, len(items))
	for i, item := range items {
		var ok bool
		if out[i], ok = jsonvalue.ParseObject(item); !ok {
			return nil, wrong
		}
	}
	return out, nil
}

// maxPage is how many elements a page may have. One is asked for.
const maxPage = 1000

package fakejudge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// upload takes a file of requests, from a form of which body is the rest.
func (b *batches) upload(w http.ResponseWriter, r *http.Request, _ string, body []byte) error {
	r.Body = io.NopCloser(bytes.NewReader(body))
	file, header, err := r.FormFile("file")
	if err != nil {
		return err
	}
	if r.FormValue("purpose") != "batch" {
		return fmt.Errorf("the purpose is %q, expected batch", r.FormValue("purpose"))
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	id := b.id("file-")
	b.files[id] = data
	return answerJSON(w, object{"id": id, "object": "file", "bytes": len(data),
		"created_at": time.Now().Unix(), "filename": header.Filename, "purpose": "batch", "status": "processed"})
}

func (b *batches) download(w http.ResponseWriter, _ *http.Request, id string, _ []byte) error {
	data, ok := b.files[id]
	if !ok {
		return fmt.Errorf("there is no file %s", id)
	}
	for _, one := range b.list {
		if id == one.ID+"-output" || id == one.ID+"-errors" {
			one.Fetched++
		}
	}
	return sendLines(w, data)
}

// makeOpenAI makes a batch from an uploaded file. As at OpenAI, all of its requests are to one
// endpoint and one model.
func (b *batches) makeOpenAI(w http.ResponseWriter, _ *http.Request, _ string, body []byte) error {
	var in struct {
		InputFileID      string         `json:"input_file_id"`
		Endpoint         string         `json:"endpoint"`
		CompletionWindow string         `json:"completion_window"`
		Metadata         map[string]any `json:"metadata"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	format, ok := formats[in.Endpoint]
	data, uploaded := b.files[in.InputFileID]
	if !ok || !uploaded || in.CompletionWindow != "24h" {
		return errors.New("expected input_file_id, an endpoint and the completion_window 24h")
	}
	one := &batch{Batch: Batch{ID: b.id("batch_"), API: format.name, Metadata: in.Metadata},
		endpoint: in.Endpoint, inputFile: in.InputFileID}
	model := ""
	for scanner := bufio.NewScanner(bytes.NewReader(data)); scanner.Scan(); {
		var line struct {
			CustomID string          `json:"custom_id"`
			Method   string          `json:"method"`
			URL      string          `json:"url"`
			Body     json.RawMessage `json:"body"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return err
		}
		var of struct{ Model string }
		_ = json.Unmarshal(line.Body, &of) // an empty one is refused below
		if model == "" {
			model = of.Model
		}
		if line.Method != http.MethodPost || line.URL != in.Endpoint || of.Model == "" || of.Model != model {
			return fmt.Errorf("the line %s is not a POST to %s of the model %s", line.CustomID, in.Endpoint, model)
		}
		one.requests = append(one.requests, batched{line.CustomID, line.URL, line.Body})
	}
	return b.add(w, one)
}

// write writes the files of answers and of errors.
func (b *batches) write(one *batch) {
	var output, failed []object
	for i, e := range one.answered {
		line := object{"id": fmt.Sprintf("batch_req_%d", i), "custom_id": e.id, "response": nil, "error": nil}
		if e.why != "" {
			line["error"] = object{"code": "batch_" + e.why,
				"message": "This request could not be executed before the completion window expired."}
			failed = append(failed, line)
			continue
		}
		line["response"] = object{"status_code": e.status, "request_id": fmt.Sprintf("req_b%d", i), "body": e.body}
		if e.status >= http.StatusBadRequest {
			failed = append(failed, line)
		} else {
			output = append(output, line)
		}
	}
	if len(output) > 0 {
		b.files[one.ID+"-output"] = lines(output)
	}
	if len(failed) > 0 {
		b.files[one.ID+"-errors"] = lines(failed)
	}
}

func (b *batches) listOpenAI(w http.ResponseWriter, r *http.Request, _ string, _ []byte) error {
	page, more := b.page(true, r.URL.Query().Get("after"), pageSize)
	data := []object{}
	for _, one := range page {
		data = append(data, showOpenAI(one))
	}
	out := object{"object": "list", "data": data, "has_more": more, "first_id": nil, "last_id": nil}
	if len(page) > 0 {
		out["first_id"], out["last_id"] = page[0].ID, page[len(page)-1].ID
	}
	return answerJSON(w, out)
}

func showOpenAI(one *batch) object {
	at := one.created.Unix()
	out := object{"id": one.ID, "object": "batch", "endpoint": one.endpoint, "errors": nil,
		"input_file_id": one.inputFile, "completion_window": "24h", "status": "in_progress",
		"output_file_id": nil, "error_file_id": nil, "created_at": at, "in_progress_at": at,
		"expires_at": one.created.Add(24 * time.Hour).Unix(), "finalizing_at": nil, "completed_at": nil,
		"failed_at": nil, "expired_at": nil, "cancelling_at": nil, "cancelled_at": nil, "metadata": one.Metadata}
	completed, failed := 0, 0
	for _, e := range one.answered {
		if e.why == "" && e.status < http.StatusBadRequest {
			completed++
		} else {
			failed++
		}
	}
	out["request_counts"] = object{"total": one.Requests, "completed": completed, "failed": failed}
	switch {
	case one.Cancelled:
		out["status"], out["cancelled_at"] = "cancelled", time.Now().Unix()
	case one.ended:
		out["status"], out["completed_at"] = "completed", time.Now().Unix()
		if completed > 0 {
			out["output_file_id"] = one.ID + "-output"
		}
		if failed > 0 {
			out["error_file_id"] = one.ID + "-errors"
		}
	}
	return out
}

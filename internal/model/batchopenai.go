package model

import (
	"bytes"
	"context"
	"encoding/json"
	"mime/multipart"
	"net/http"
	"net/url"
)

// openaiBatches is OpenAI's interface: a file of requests, all to one endpoint, and files of
// answers. A batch has our id in its metadata, so that it can be found again.
type openaiBatches struct{ endpoint string }

// metadataKey is the key of our id in a batch's metadata.
const metadataKey = "evalrun"

type openaiBatch struct {
	ID           string            `json:"id"`
	Status       string            `json:"status"`
	OutputFileID string            `json:"output_file_id"`
	ErrorFileID  string            `json:"error_file_id"`
	CreatedAt    int64             `json:"created_at"`
	Metadata     map[string]string `json:"metadata"`
}

func (o openaiBatches) start(ctx context.Context, c *Batches, b Batch, requests []BatchRequest) (string, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	_ = form.WriteField("purpose", "batch") // a buffer accepts everything, here and below
	file, _ := form.CreateFormFile("file", "evalrun-"+b.ID+".jsonl")
	lines := json.NewEncoder(file)
	for _, r := range requests {
		if err := lines.Encode(map[string]any{"custom_id": r.CustomID, "method": http.MethodPost,
			"url": o.endpoint, "body": r.Body}); err != nil {
			return "", &BatchError{Final: true, Message: err.Error()}
		}
	}
	_ = form.Close()
	response, err := c.open(ctx, http.MethodPost, "/files", form.FormDataContentType(), &body)
	if err != nil {
		return "", err
	}
	var uploaded struct {
		ID string `json:"id"`
	}
	err = json.NewDecoder(response).Decode(&uploaded)
	_ = response.Close() // only read
	if err != nil || uploaded.ID == "" {
		return "", &BatchError{Message: "the provider " + c.e.Name + " has given the uploaded file no id"}
	}
	var made openaiBatch
	if err := c.json(ctx, http.MethodPost, "/batches", map[string]any{"input_file_id": uploaded.ID, "endpoint": o.endpoint,
		"completion_window": "24h", "metadata": map[string]any{metadataKey: b.ID}}, &made); err != nil {
		return "", err
	}
	if made.ID == "" {
		return "", &BatchError{Message: "the provider " + c.e.Name + " has given the batch no id"}
	}
	return made.ID, nil
}

// find searches the batches from the newest to those older than the first try.
func (openaiBatches) find(ctx context.Context, c *Batches, b Batch) (string, error) {
	after := ""
	for {
		var page struct {
			Data    []openaiBatch `json:"data"`
			HasMore bool          `json:"has_more"`
		}
		if err := c.json(ctx, http.MethodGet, "/batches?limit=100"+after, nil, &page); err != nil {
			return "", err
		}
		for _, one := range page.Data {
			if one.Metadata[metadataKey] == b.ID {
				return one.ID, nil
			}
		}
		if !page.HasMore || len(page.Data) == 0 {
			return "", nil
		}
		last := page.Data[len(page.Data)-1]
		if last.CreatedAt < b.Since.Add(-clockSkew).Unix() {
			return "", nil
		}
		after = "&after=" + url.QueryEscape(last.ID)
	}
}

func (openaiBatches) check(ctx context.Context, c *Batches, id string) (BatchStatus, error) {
	var b openaiBatch
	if err := c.json(ctx, http.MethodGet, "/batches/"+url.PathEscape(id), nil, &b); err != nil {
		return BatchStatus{}, err
	}
	s := BatchStatus{Why: b.Status}
	switch b.Status {
	case "completed", "failed", "expired", "cancelled":
		s.Ended = true
	}
	for _, file := range []string{b.OutputFileID, b.ErrorFileID} {
		if file != "" {
			s.files = append(s.files, "/files/"+url.PathEscape(file)+"/content")
		}
	}
	return s, nil
}

func (openaiBatches) answer(line []byte) (customID string, out BatchAnswer, err error) {
	var in struct {
		CustomID string `json:"custom_id"`
		Response *struct {
			StatusCode int             `json:"status_code"`
			RequestID  string          `json:"request_id"`
			Body       json.RawMessage `json:"body"`
		} `json:"response"`
		Error *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return "", out, err
	}
	switch {
	case in.Error != nil:
		out.Error = in.Error.Code + ": " + Short(in.Error.Message)
	case in.Response == nil || in.Response.StatusCode >= 300:
		out.Error = "the request was refused"
		if in.Response != nil {
			out.RequestID, out.Error = in.Response.RequestID, "the request was refused: "+Short(string(in.Response.Body))
		}
	default:
		out.RequestID, out.Body = in.Response.RequestID, in.Response.Body
	}
	return in.CustomID, out, nil
}

func (openaiBatches) cancelPath(id string) string {
	return "/batches/" + url.PathEscape(id) + "/cancel"
}

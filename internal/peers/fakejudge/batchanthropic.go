package fakejudge

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

func (b *batches) makeAnthropic(w http.ResponseWriter, _ *http.Request, _ string, body []byte) error {
	var in struct {
		Requests []struct {
			CustomID string          `json:"custom_id"`
			Params   json.RawMessage `json:"params"`
		} `json:"requests"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	one := &batch{Batch: Batch{ID: b.id("msgbatch_"), API: "messages"}}
	for _, q := range in.Requests {
		one.requests = append(one.requests, batched{q.CustomID, "/v1/messages", q.Params})
	}
	return b.add(w, one)
}

func (b *batches) listAnthropic(w http.ResponseWriter, r *http.Request, _ string, _ []byte) error {
	page, more := b.page(false, r.URL.Query().Get("after_id"), pageSize)
	data := []object{}
	for _, one := range page {
		data = append(data, b.showAnthropic(one))
	}
	out := object{"data": data, "has_more": more, "first_id": nil, "last_id": nil}
	if len(page) > 0 {
		out["first_id"], out["last_id"] = page[0].ID, page[len(page)-1].ID
	}
	return answerJSON(w, out)
}

// results gives the results of a batch that has ended.
func (b *batches) results(w http.ResponseWriter, _ *http.Request, id string, _ []byte) error {
	one, err := b.find(id)
	if err != nil {
		return err
	}
	if !one.ended {
		return errors.New("the batch has no results yet")
	}
	one.Fetched++
	var all []object
	for _, e := range one.answered {
		result := object{"type": "succeeded", "message": e.body}
		switch {
		case e.why != "":
			result = object{"type": e.why}
		case e.status >= http.StatusBadRequest:
			result = object{"type": "errored", "error": object{"type": "error", "request_id": nil,
				"error": object{"type": errorType(e.status), "message": at(e.body, "error", "message")}}}
		}
		all = append(all, object{"custom_id": e.id, "result": result})
	}
	return sendLines(w, lines(all))
}

func (b *batches) showAnthropic(one *batch) object {
	counts := map[string]int{
		"processing": one.Requests - len(one.answered), "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0,
	}
	for _, e := range one.answered {
		switch {
		case e.why != "":
			counts[e.why]++
		case e.status >= http.StatusBadRequest:
			counts["errored"]++
		default:
			counts["succeeded"]++
		}
	}
	out := object{"id": one.ID, "type": "message_batch", "processing_status": "in_progress",
		"request_counts": counts, "created_at": rfc3339(one.created),
		"expires_at": rfc3339(one.created.Add(24 * time.Hour)), "ended_at": nil,
		"archived_at": nil, "cancel_initiated_at": nil, "results_url": nil}
	if one.Cancelled {
		out["cancel_initiated_at"] = rfc3339(time.Now())
	}
	if one.ended {
		out["processing_status"], out["ended_at"] = "ended", rfc3339(time.Now())
		out["results_url"] = b.s.URL() + "/v1/messages/batches/" + one.ID + "/results"
	}
	return out
}

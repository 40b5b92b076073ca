package web

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// maxPairs is the most epochs of an evaluation that a page compares.
const maxPairs = 5

// outputsPage has the outputs of both sides of a comparison for one evaluation.
type outputsPage struct {
	frame
	// Back leads to the comparison.
	Back  string
	Name  string
	Pairs []outputPair
	// More counts the epochs that are left out.
	More int
}

// outputPair is one epoch of both sides, in words that are marked where the two differ.
type outputPair struct {
	Epoch int
	A, B  outputSide
}

// outputSide is a rollout of a side.
type outputSide struct {
	Status, URL string
	Score       *float64
	Text        string
	Words       []word
	More        int
}

// outputs answers with the page of the outputs of two runs for an evaluation, side by side.
func (p *site) outputs(w http.ResponseWriter, r *http.Request) error {
	page, err := p.sideBySide(r.Context(), r.URL.Query())
	if err != nil {
		return err
	}
	return p.o.present(w, r, http.StatusOK, "outputs.html", page)
}

// outputsInPlace answers with the same for a row that is opened in the list of a comparison.
func (p *site) outputsInPlace(w http.ResponseWriter, r *http.Request) error {
	page, err := p.sideBySide(r.Context(), r.URL.Query())
	if err != nil {
		return err
	}
	pairs := []placedPair{}
	for _, pair := range page.Pairs {
		pairs = append(pairs, placedPair{pair.Epoch, placedSideOf(pair.A), placedSideOf(pair.B)})
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that is gone misses the answer.
	_ = json.NewEncoder(w).Encode(map[string]any{"pairs": pairs, "more": page.More})
	return nil
}

// placedPair is an outputPair for the script.
type placedPair struct {
	Epoch int        `json:"epoch"`
	A     placedSide `json:"a"`
	B     placedSide `json:"b"`
}

// placedSide has the words of a side, each with whether the other side lacks it. It has no URL if
// there is no rollout.
type placedSide struct {
	Status string   `json:"status,omitempty"`
	Score  string   `json:"score,omitempty"`
	URL    string   `json:"url,omitempty"`
	Words  [][2]any `json:"words,omitempty"`
	More   int      `json:"more,omitempty"`
}

func placedSideOf(s outputSide) placedSide {
	if s.URL == "" {
		return placedSide{}
	}
	out := placedSide{Status: s.Status, Score: formatScore(s.Score), URL: s.URL, More: s.More}
	for _, w := range s.Words {
		out.Words = append(out.Words, [2]any{w.Text, w.Differs})
	}
	return out
}

// sideBySide reads the outputs of two runs for an evaluation.
func (p *site) sideBySide(ctx context.Context, q url.Values) (*outputsPage, error) {
	page := &outputsPage{frame: frame{Title: "Outputs side by side", Section: "/compare"}, Name: q.Get("evaluation")}
	back := url.Values{}
	for _, key := range []string{"a", "b", "margin", "by", "different"} {
		if q.Has(key) {
			back[key] = q[key]
		}
	}
	page.Back = "/compare?" + back.Encode()
	a, err := p.sideOutputs(ctx, q.Get("a"), q.Get("agent"), page)
	if err != nil {
		return nil, err
	}
	b, err := p.sideOutputs(ctx, q.Get("b"), q.Get("agent"), page)
	if err != nil {
		return nil, err
	}
	if len(a)+len(b) == 0 {
		return nil, notFound("neither run has a rollout of the evaluation %s", plain(q.Get("evaluation")))
	}
	page.More = max(len(a), len(b), maxPairs) - maxPairs
	for i := range min(max(len(a), len(b)), maxPairs) {
		pair := outputPair{Epoch: i + 1}
		if i < len(a) {
			pair.A = a[i]
		}
		if i < len(b) {
			pair.B = b[i]
		}
		pair.A.Words, pair.B.Words = words(pair.A.Text, pair.B.Text)
		page.Pairs = append(page.Pairs, pair)
	}
	return page, nil
}

// sideOutputs returns the rollouts of the page's evaluation in RUN or RUN:AGENT, in the order of
// their epochs.
func (p *site) sideOutputs(ctx context.Context, side, agent string, page *outputsPage) (out []outputSide, err error) {
	name, own, _ := strings.Cut(side, ":")
	run, err := p.o.Service.Runner().Find(ctx, name)
	if err != nil {
		return nil, p.missing(ctx, name, err)
	}
	if own != "" {
		agent = own
	}
	found, err := p.o.Service.Head(ctx, run.ID)
	if err != nil {
		return nil, err
	}
	o, err := p.overviewOf(ctx, found)
	if err != nil {
		return nil, err
	}
	id := page.Name
	for at := range o.rows {
		one := &o.rows[at]
		if one.EvaluationID != id || agent != "" && one.Agent != agent {
			continue
		}
		s := outputSide{Status: one.Status, URL: o.url(at, ""), Score: one.Score}
		if len(out) < maxPairs {
			d, err := p.o.Service.Rollout(ctx, run.ID, one.RolloutID)
			if err != nil {
				return nil, err
			}
			switch x := d.AgentExecutionOutput; {
			case d.Error != nil:
				s.Text = d.Error.Message
			case x != nil:
				s.Text = textOf(x.Result.Output)
			}
			s.Text, s.More = cut(s.Text, maxValue)
		}
		out = append(out, s)
	}
	return out, nil
}

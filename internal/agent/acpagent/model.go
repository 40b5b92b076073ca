package acpagent

import (
	"errors"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/record"
)

// modelPort is the model's port on the loopback of a sandbox without network.
const modelPort = 18434

// openModel opens the agent's way to its model, if an endpoint with a key is configured.
func (s *segment) openModel() (*modelproxy.Session, *fault.Fault) {
	a, m := s.acpAgent, s.entry.Model
	if m == nil || a.opts.Models == nil {
		return nil, nil
	}
	key, unknown := a.opts.Expand(m.Key)
	if unknown != "" || key == "" && m.Key != "" {
		return nil, nil // the agent may have credentials of its own
	}
	target, unknown := a.opts.Expand(m.URL)
	if unknown != "" {
		return nil, fault.Newf(fault.Start, "the model's URL needs ${%s}, which is not set", unknown)
	}
	session, err := a.opts.Models.Open(modelproxy.Upstream{API: m.API, URL: target, Key: key, Counted: s.meter.count,
		Offered: s.offers.add})
	if err != nil {
		return nil, fault.New(fault.Start, err.Error())
	}
	return session, nil
}

// keepModelCalls writes the calls that the model proxy saw to FileModel.
func (s *segment) keepModelCalls() error {
	log := record.NewLines(filepath.Join(s.seg.Dir, FileModel), s.redact)
	for _, call := range s.model.Calls() {
		if err := log.Append(call); err != nil {
			return errors.Join(err, log.Close())
		}
	}
	return log.Close()
}

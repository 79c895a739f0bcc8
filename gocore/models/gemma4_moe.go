package models

import (
	"math"

	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// gemma4Experts are a layer's experts and what chooses among them. The router
// normalises its input by itself, and softmax runs over the chosen experts
// only.
type gemma4Experts struct {
	norm     *nn.RMSNorm // weighted by the router's scale
	router   *nn.Linear
	perToken int
	scales   mlxc.Array // [experts], on the weights of the chosen
	glu      *nn.SwitchGLU
}

func (p *gemma4Parts) experts(at nn.Layer) *gemma4Experts {
	d, moe := p.d.Dimensions, p.d.MoE
	return &gemma4Experts{
		norm:     &nn.RMSNorm{Weight: p.routerScale(at), Eps: float32(d.NormEps)},
		router:   at.Linear(weights.Router, d.Hidden, moe.Experts, false),
		perToken: moe.PerToken,
		scales:   at.Tensor(weights.RouterExpertScale, moe.Experts),
		glu:      at.SwitchGLU(moe.Experts, d.Hidden, moe.Intermediate, p.geglu),
	}
}

// routerScale is the weight of the router's norm: its scale over √hidden.
func (p *gemma4Parts) routerScale(at nn.Layer) mlxc.Array {
	hidden := p.d.Dimensions.Hidden
	scale := at.Tensor(weights.RouterScale, hidden)
	if p.st.Err() != nil {
		return mlxc.Array{}
	}
	s := p.st.Scope()
	return p.st.Adopt(s.Keep(s.Multiply(scale, s.ScalarLike(scale, float32(1/math.Sqrt(float64(hidden)))))))
}

// forward chooses the experts by h and runs them on x, both [B, L, dim].
func (e *gemma4Experts) forward(s *mlxc.Scope, h, x mlxc.Array) mlxc.Array {
	scores := e.router.Forward(s, e.norm.Forward(s, h))
	order := s.ArgPartition(scores, -e.perToken, -1)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	b, l, n := order.Dim(0), order.Dim(1), order.Dim(2)
	chosen := s.Slice(order, []int{0, 0, n - e.perToken}, []int{b, l, n})
	shares := s.Softmax(s.TakeAlongAxis(scores, chosen, -1), -1, false)
	shares = s.Multiply(shares, s.Take(e.scales, chosen, 0))
	return nn.WeighExperts(s, e.glu.Forward(s, x, chosen), shares)
}

package nn

import (
	"math"

	"axlm/gocore/errs"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// RoPE rotates the first Dims of each head's features by angles that grow with
// the token's position. Its variants differ in their frequencies and in a
// factor on the input.
type RoPE struct {
	Dims        int
	Traditional bool
	base        float32    // frequencies base^(−2i/dims); 0 when freqs holds them
	scale       float32    // on positions
	freqs       mlxc.Array // [dims/2] float32 periods, optional
	input       float32    // factor on the rotated features; 1 for most
	dynamic     *dynamicBase
}

// dynamicBase raises the base with the length once a context outgrows the one
// the model was trained with.
type dynamicBase struct {
	factor    float64
	maxLength int
}

// RoPEConfig is what the variants are made from.
type RoPEConfig struct {
	Dims        int
	Base        float64
	Traditional bool
	MaxLength   int // max_position_embeddings, 0 when absent
	// Scaling is config.json's rope_scaling or rope_parameters; nil for none.
	Scaling *weights.Config
}

// kind is the variant that the dictionary names.
func kind(p weights.Reader) string {
	if p.Has("type") {
		return p.String("type")
	}
	return p.StringOr("rope_type", "default")
}

// NewRoPE makes the variant that c.Scaling names under type or rope_type. It
// computes frequencies with MLX in float32, op by op as mlx_lm does, so that
// both rotate by the same angles to the last bit. The caller frees it.
func NewRoPE(s *mlxc.Scope, c RoPEConfig) (*RoPE, error) {
	if c.Dims < 2 || c.Dims%2 != 0 {
		return nil, errs.Value("rope: the number of rotated features must be even and positive, got %d", c.Dims)
	}
	if !(c.Base > 0) || math.IsInf(c.Base, 0) {
		return nil, errs.Value("config.json: rope_theta must be a positive number, got %v", c.Base)
	}
	r := &RoPE{Dims: c.Dims, Traditional: c.Traditional, base: float32(c.Base), scale: 1, input: 1}
	if c.Scaling == nil {
		return r, nil
	}
	p := c.Scaling.Reader()
	var freqs mlxc.Array
	switch name := kind(p); name {
	case "default", "mrope":
	case "linear":
		r.scale = float32(1 / p.Float("factor"))
	case "dynamic":
		r.dynamic = &dynamicBase{factor: p.Float("factor"), maxLength: c.MaxLength}
	case "llama3":
		freqs = llama3Periods(s, c, p)
	case "yarn", "deepseek_yarn", "telechat3-yarn":
		freqs = yarnPeriods(s, c, p)
		factor := p.Float("factor")
		r.input = float32(yarnScale(factor, p.FloatOr("mscale", 1)) / yarnScale(factor, p.FloatOr("mscale_all_dim", 0)))
	case "longrope":
		freqs = longPeriods(s, c, p)
		r.input = float32(longScale(c, p))
	case "proportional":
		freqs = proportionalPeriods(s, c, p)
	default:
		if p.Err() == nil {
			return nil, errs.Value("config.json: rope type %q is not supported", name)
		}
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if freqs.Valid() || s.Err() != nil {
		r.base, r.freqs = 0, s.Keep(freqs)
	}
	return r, s.Err()
}

// Fixed is the length of text up to which a token's angles do not depend on the
// tokens that a forward has beside it; 0 for any length.
func (r *RoPE) Fixed() int {
	if r.dynamic == nil {
		return 0
	}
	return r.dynamic.maxLength
}

// Forward rotates x [B, heads, L, d] for positions offset, offset+1, ….
func (r *RoPE) Forward(s *mlxc.Scope, x mlxc.Array, offset int) mlxc.Array {
	base := r.base
	if d := r.dynamic; d != nil {
		length := float64(max(x.Dim(-2)+offset, d.maxLength))
		dims := float64(r.Dims)
		base = float32(float64(r.base) * math.Pow(d.factor*length/float64(d.maxLength)-(d.factor-1), dims/(dims-2)))
	}
	if r.input != 1 {
		x = r.scaleInput(s, x)
	}
	return s.RoPE(x, r.Dims, r.Traditional, base, r.scale, offset, r.freqs)
}

// forwardAt rotates x [B, heads, L, d] for positions from each of offsets [B] on.
func (r *RoPE) forwardAt(s *mlxc.Scope, x, offsets mlxc.Array) mlxc.Array {
	if r.input != 1 {
		x = r.scaleInput(s, x)
	}
	return s.RoPEDynamic(x, r.Dims, r.Traditional, r.base, r.scale, offsets, r.freqs)
}

func (r *RoPE) scaleInput(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	factor := s.ScalarLike(x, r.input)
	if r.Dims == x.Dim(-1) {
		return s.Multiply(x, factor)
	}
	parts := s.SplitAt(x, -1, r.Dims)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	return s.Concatenate(-1, s.Multiply(parts[0], factor), parts[1])
}

// periods is base^(2i/dims) for i in [0, rotated/2).
func periods(s *mlxc.Scope, base float64, rotated, dims int) mlxc.Array {
	exponents := s.Divide(s.Arange(0, float64(rotated), 2, mlxc.Float32), s.Scalar(float32(dims), mlxc.Float32))
	return s.Power(s.Scalar(float32(base), mlxc.Float32), exponents)
}

// f32 makes a float32 scalar.
func f32(s *mlxc.Scope, v float64) mlxc.Array { return s.Scalar(float32(v), mlxc.Float32) }

func llama3Periods(s *mlxc.Scope, c RoPEConfig, p weights.Reader) mlxc.Array {
	factor := p.Float("factor")
	low, high := p.FloatOr("low_freq_factor", 1), p.FloatOr("high_freq_factor", 4)
	trained := p.FloatOr("original_max_position_embeddings", 8192)
	freqs := periods(s, c.Base, c.Dims, c.Dims)
	waves := s.Multiply(f32(s, 2*math.Pi), freqs)
	slow := s.Where(s.Greater(waves, f32(s, trained/low)), s.Multiply(freqs, f32(s, factor)), freqs)
	medium := s.LogicalAnd(s.Greater(waves, f32(s, trained/high)), s.Less(waves, f32(s, trained/low)))
	smooth := s.Divide(s.Subtract(s.Divide(f32(s, trained), waves), f32(s, low)), f32(s, high-low))
	blend := s.Add(s.Divide(s.Subtract(f32(s, 1), smooth), f32(s, factor)), smooth)
	return s.Where(medium, s.Divide(slow, blend), slow)
}

func yarnScale(factor, mscale float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*mscale*math.Log(factor) + 1
}

func yarnPeriods(s *mlxc.Scope, c RoPEConfig, p weights.Reader) mlxc.Array {
	factor := p.Float("factor")
	trained := p.FloatOr("original_max_position_embeddings", 4096)
	dims := float64(c.Dims)
	turn := func(beta float64) float64 {
		return dims * math.Log(trained/(beta*2*math.Pi)) / (2 * math.Log(c.Base))
	}
	low := math.Max(math.Floor(turn(p.FloatOr("beta_fast", 32))), 0)
	high := math.Min(math.Ceil(turn(p.FloatOr("beta_slow", 1))), dims-1)
	if low == high {
		high += 0.001
	}
	ramp := s.Divide(s.Subtract(s.Arange(0, dims/2, 1, mlxc.Float32), f32(s, low)), f32(s, high-low))
	mask := s.Subtract(f32(s, 1), s.Clip(ramp, f32(s, 0), f32(s, 1)))
	extra := periods(s, c.Base, c.Dims, c.Dims)
	inter := s.Multiply(f32(s, factor), extra)
	below := s.Add(s.Multiply(inter, mask), s.Multiply(extra, s.Subtract(f32(s, 1), mask)))
	return s.Divide(s.Multiply(inter, extra), below)
}

func longPeriods(s *mlxc.Scope, c RoPEConfig, p weights.Reader) mlxc.Array {
	factors := p.Floats("long_factor")
	if len(factors) != 1 && len(factors) != c.Dims/2 {
		p.Fail(errs.Value("config.json: rope long_factor has %d values, want %d", len(factors), c.Dims/2))
	}
	if p.Err() != nil {
		return mlxc.Array{}
	}
	narrow := make([]float32, len(factors))
	for i, f := range factors {
		narrow[i] = float32(f)
	}
	return s.Multiply(s.FromFloat32s(narrow, len(narrow)), periods(s, c.Base, c.Dims, c.Dims))
}

func longScale(c RoPEConfig, p weights.Reader) float64 {
	trained := p.Float("original_max_position_embeddings")
	factor := float64(c.MaxLength) / trained
	if factor <= 1 {
		return 1
	}
	return math.Sqrt(1 + math.Log(factor)/math.Log(trained))
}

// proportionalPeriods rotates only the first part of the features; the others
// turn infinitely slowly.
func proportionalPeriods(s *mlxc.Scope, c RoPEConfig, p weights.Reader) mlxc.Array {
	rotated := int(float64(c.Dims) * p.FloatOr("partial_rotary_factor", 1))
	if rotated < 0 || rotated > c.Dims {
		p.Fail(errs.Value("config.json: partial_rotary_factor must lie in [0, 1]"))
		return mlxc.Array{}
	}
	turning := s.Multiply(f32(s, p.FloatOr("factor", 1)), periods(s, c.Base, rotated, c.Dims))
	still := s.Full(mlxc.Float32, float32(math.Inf(1)), (c.Dims-rotated)/2)
	return s.Concatenate(0, turning, still)
}

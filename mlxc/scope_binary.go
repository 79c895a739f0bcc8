package mlxc

// Elementwise operations of several arrays, which are broadcast against each other and promoted to a common type.

// binary runs an operation on two arrays. Its caller has begun it.
func (s *Scope) binary(f *function, a, b Array) Array {
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = a.ctx, b.ctx, s.stream.ctx
	return s.finish(f, a, b)
}

// Add returns a + b.
func (s *Scope) Add(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_add, a, b)
}

// Subtract returns a - b.
func (s *Scope) Subtract(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_subtract, a, b)
}

// Multiply returns a · b, element by element.
func (s *Scope) Multiply(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_multiply, a, b)
}

// Divide returns a / b.
func (s *Scope) Divide(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_divide, a, b)
}

// FloorDivide returns a / b rounded down.
func (s *Scope) FloorDivide(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_floor_divide, a, b)
}

// Remainder returns what a / b leaves, with b's sign.
func (s *Scope) Remainder(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_remainder, a, b)
}

// Power returns a to the b.
func (s *Scope) Power(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_power, a, b)
}

// Maximum returns the greater of a and b.
func (s *Scope) Maximum(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_maximum, a, b)
}

// Minimum returns the smaller of a and b.
func (s *Scope) Minimum(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_minimum, a, b)
}

// LogAddExp returns log(exp(a) + exp(b)).
func (s *Scope) LogAddExp(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_logaddexp, a, b)
}

// Equal returns whether a = b.
func (s *Scope) Equal(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_equal, a, b)
}

// Less returns whether a < b.
func (s *Scope) Less(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_less, a, b)
}

// LessEqual returns whether a ≤ b.
func (s *Scope) LessEqual(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_less_equal, a, b)
}

// Greater returns whether a > b.
func (s *Scope) Greater(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_greater, a, b)
}

// GreaterEqual returns whether a ≥ b.
func (s *Scope) GreaterEqual(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_greater_equal, a, b)
}

// LogicalAnd returns whether both a and b are nonzero.
func (s *Scope) LogicalAnd(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_logical_and, a, b)
}

// Where returns a's elements where condition holds and b's elsewhere.
func (s *Scope) Where(condition, a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	s.frame.a[1], s.frame.a[2], s.frame.a[3], s.frame.a[4] = condition.ctx, a.ctx, b.ctx, s.stream.ctx
	return s.finish(&s.lib.c.mlx_where, condition, a, b)
}

// Clip limits elements to the range from low to high; either may be none.
func (s *Scope) Clip(a, low, high Array) Array {
	if !s.begin() {
		return Array{}
	}
	s.frame.a[1], s.frame.a[2], s.frame.a[3], s.frame.a[4] = a.ctx, low.ctx, high.ctx, s.stream.ctx
	return s.finish(&s.lib.c.mlx_clip, a, low, high)
}

"""The golden vectors' generator: multi-precision answers for other implementations to be held against.

    python -m validation.vectors                  make all records anew; append those that are new, report those that differ
    python -m validation.vectors --missing        make only those that are not there yet
    python -m validation.vectors --check 5%       make a random share anew and compare (also: --sample 0.05 --seed 3)
    python -m validation.vectors --digits 90      compare at another working precision
    python -m validation.vectors --answer         36 digits and a tolerance for inputs of one's own, as in

        echo '{"op": "grad", "target": "funnel", "q": ["0x1p-1", "0x1p+0", "-0x1p+0", "0x0p+0"]}' |
            python -m validation.vectors --answer

Nothing of refhmc is used: log densities are written from the mathematics in :mod:`~validation.vectors.targets`, every
derivative is a central difference at some 200 digits (:mod:`~validation.vectors.arithmetic`), matrix functions go through
mpmath's eigenvalues, implicit equations through Newton's method, NUTS is recursive. The format is in
``refhmc/vectors/README.md``.
"""

# title: SBCL: a Lisp that maps its own heap
# area: Languages
sbcl --noinform --non-interactive --eval '(progn (format t "~a ~a~%" (reduce (function +) (loop for i below 1000 collect i)) (expt 3 100)) (gc :full t) (format t "gc~%"))'

# title: PHP: command line and its built-in server
# area: Languages
echo '<?php echo json_encode(["sum"=>array_sum(range(1,100)),"v"=>PHP_MAJOR_VERSION]),"\n";' > i.php; php i.php
php -S 127.0.0.1:8099 >/dev/null 2>&1 & P=$!; sleep 1; curl -s http://127.0.0.1:8099/i.php; kill $P

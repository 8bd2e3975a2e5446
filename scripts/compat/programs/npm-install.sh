# title: npm: install and run packages
# area: Package managers
# net: npm
mkdir p && cd p && npm init -y >/dev/null
npm install --no-audit --prefer-online --no-fund --no-update-notifier --silent is-number@7.0.0 lodash@4.17.21 typescript@5.4.5 >/dev/null
node -e 'console.log(require("is-number")(5), require("lodash").chunk([1,2,3,4],2))'
echo 'const x: number = 6*7; console.log(x)' > a.ts && node_modules/.bin/tsc a.ts && node a.js
find node_modules -type f | wc -l

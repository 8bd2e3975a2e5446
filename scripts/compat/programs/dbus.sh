# title: D-Bus session bus
# area: Servers
dbus-run-session -- dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.ListNames 2>/dev/null | grep -c 'org.freedesktop.DBus'

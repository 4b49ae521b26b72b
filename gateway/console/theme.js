// Runs before the first paint, so that a chosen theme does not flash. What is stored are choices of looks, no secrets.
'use strict';
try {
    const theme = localStorage.getItem('postdate.theme');
    if (theme === 'light' || theme === 'dark')
        document.documentElement.dataset.theme = theme;
} catch {
    // storage is closed: the system's theme
}
